import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import ndtri

import doublefeature as df
from doublefeature.errors import RatingsError, SettingsError
from doublefeature.inference.chain import sample
from doublefeature.inference.diagnostics import diagnose
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.parameters import parameters_of
from doublefeature.posterior import convergence
from doublefeature.posterior.convergence import (
    draw_probes,
    ess_bulk,
    ess_tail,
    judge,
    mcse_mean,
    normal_quantile,
    plain_id,
    probe_means,
    rhat,
)
from doublefeature.posterior.draws import Draw, Posterior, Trace
from doublefeature.posterior.predict import predict_levels
from doublefeature.studies.recovery import Design, simulate
from tests.examples import message

USERS, ITEMS = 12, 9


def autoregressive(rng, shape, keep):
    steps = rng.standard_normal(shape)
    steps[:, 0] /= math.sqrt(1.0 - keep**2)
    for now in range(1, shape[1]):
        steps[:, now] += keep * steps[:, now - 1]
    return steps


KINDS = {
    "independent": lambda rng, shape: rng.standard_normal(shape),
    "slow": lambda rng, shape: autoregressive(rng, shape, 0.95),
    "alternating": lambda rng, shape: autoregressive(rng, shape, -0.8),
    "apart": lambda rng, shape: rng.standard_normal(shape) + 3.0 * np.arange(shape[0])[:, None],
    "scales": lambda rng, shape: rng.standard_normal(shape) * 3.0 ** np.arange(shape[0])[:, None],
    "trend": lambda rng, shape: rng.standard_normal(shape) + np.linspace(0.0, 4.0, shape[1]),
    "heavy tails": lambda rng, shape: rng.standard_cauchy(shape),
    "counts": lambda rng, shape: rng.poisson(2.0, shape).astype(float),
    "rare": lambda rng, shape: (rng.random(shape) < 0.05).astype(float),
    "integers": lambda rng, shape: rng.poisson(2.0, shape),
}
SHAPES = [(2, 8), (2, 9), (3, 11), (4, 50), (2, 333), (5, 64)]


def arviz(chains):
    with np.errstate(all="ignore"):
        tail = array_stats.ess(chains, method="tail", prob=(0.05, 0.95))
        found = array_stats.rhat(chains, method="rank"), array_stats.ess(chains, method="bulk"), tail
        return np.array([float(x) for x in (*found, array_stats.mcse(chains, method="mean"))])


def ours(chains):
    return np.array([rhat(chains), ess_bulk(chains), ess_tail(chains), mcse_mean(chains)])


def assert_same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-8)


class TestNormalQuantile:
    P = np.concatenate([np.logspace(-300, -1, 500), np.linspace(0.001, 0.999, 999), 1.0 - np.logspace(-15, -2, 99)])

    def test_equals_scipy(self):
        found = [normal_quantile(p) for p in self.P.tolist()]
        np.testing.assert_allclose(found, ndtri(self.P), rtol=1e-12, atol=1e-12)

    def test_the_start_alone_would_be_seen(self):
        starts = [-math.sqrt(-2.0 * math.log(2.0 * p)) for p in self.P[self.P < 0.5].tolist()]
        expected = ndtri(self.P[self.P < 0.5])
        assert (np.array(starts) <= expected + 1e-12).all()
        assert np.abs(starts - expected).max() > 0.1

    def test_the_middle(self):
        assert normal_quantile(0.5) == 0.0


class TestAgainstArviz:
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("kind", KINDS)
    def test_equal(self, rng, kind, shape):
        for _ in range(5):
            chains = KINDS[kind](rng, shape)
            assert_same(ours(chains), arviz(chains))

    @pytest.mark.parametrize(
        ("name", "bug", "kind"),
        [
            ("_normal_scores", lambda values: values, "heavy tails"),
            ("_halves", lambda chains: chains, "trend"),
            ("TAILS", (0.1, 0.9), "slow"),
        ],
    )
    def test_planted_bugs_are_seen(self, rng, monkeypatch, name, bug, kind):
        chains = KINDS[kind](rng, (4, 50))
        assert_same(ours(chains), arviz(chains))
        monkeypatch.setattr(convergence, name, bug)
        with pytest.raises(AssertionError):
            assert_same(ours(chains), arviz(chains))

    def test_only_folding_sees_chains_that_differ_in_scale(self, rng, monkeypatch):
        chains = KINDS["scales"](rng, (4, 100))
        assert rhat(chains) > 1.2
        monkeypatch.setattr(convergence.np, "abs", lambda values: values)
        assert rhat(chains) < 1.05


class TestEffectiveDraws:
    def test_known_autocorrelation(self, rng):
        keep, shape = 0.8, (4, 20_000)
        exact = 80_000 * (1 - keep) / (1 + keep)
        found = np.array([mcse_mean(autoregressive(rng, shape, keep)) for _ in range(6)])
        expected = 1.0 / math.sqrt(1 - keep**2) / math.sqrt(exact)
        assert np.abs(found / expected - 1.0).max() < 0.1
        assert expected / (1.0 / math.sqrt(1 - keep**2) / math.sqrt(80_000)) > 2.9  # what ignoring it would give

    def test_chains_that_stay_apart_are_worth_one_draw_each(self, rng):
        levels = np.array([0.0, 5.0, 11.0, 30.0])[:, None]
        stuck = np.repeat(levels, 400, axis=1)
        assert ess_bulk(stuck + 1e-3 * rng.standard_normal(stuck.shape)) == pytest.approx(4.0, rel=0.2)
        assert mcse_mean(stuck) == pytest.approx(float(np.std(levels)) / 2.0, rel=0.03)


class TestEdges:
    def test_constants(self):
        found = judge(np.full((3, 20), 0.1))
        assert math.isnan(found.rhat)
        assert (found.sd, found.mcse) == (pytest.approx(0.0, abs=1e-15), pytest.approx(0.0, abs=1e-15))
        assert found.ess_bulk == found.ess_tail == 60

    def test_every_chain_keeps_its_own_value(self):
        assert rhat(np.repeat([[0.1], [0.3]], 20, axis=1)) == math.inf

    def test_two_values_in_equal_parts(self):
        chains = np.tile([0.0, 1.0], (2, 10))
        assert rhat(chains) == pytest.approx(float(arviz(chains)[0]))

    def test_too_few_draws(self, rng):
        assert np.isnan(ours(rng.standard_normal((4, 7)))).all()
        assert np.isfinite(ours(rng.standard_normal((4, 8)))).all()
        assert math.isnan(judge(np.ones((1, 1))).sd)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_numbers_that_are_not_finite(self, rng, value):
        chains = rng.standard_normal((2, 20))
        chains[1, 3] = value
        assert np.isnan(ours(chains)).all()

    def test_one_chain_is_compared_with_itself(self, rng):
        still, moving = rng.standard_normal((1, 400)), rng.standard_normal((1, 400)) + np.linspace(0, 3, 400)
        assert rhat(still) < 1.05 < 1.2 < rhat(moving)
        assert_same([ess_bulk(still), ess_tail(still)], arviz(still)[1:3])

    @pytest.mark.parametrize(
        ("label", "plain"), [(3, 3), ("ü", "ü"), (2**70, str(2**70)), (True, "True"), ((1,), "(1,)")]
    )
    def test_plain_ids(self, label, plain):
        assert plain_id(label) == plain

    def test_text_no_file_takes(self):
        assert plain_id("a\0b\ud800") == "a\\0b\\ud800"


def ratings_of(levels="1..5"):
    users, items = (codes.ravel() for codes in np.indices((USERS, ITEMS)))
    values = ((users + items) % 2).astype(np.uint8)
    names = {"users": [f"u{k}" for k in range(USERS)], "items": [f"film {k}" for k in range(ITEMS)]}
    return df.Ratings.from_codes(users, items, values, **names, levels=levels)


def made(offsets, *, n_features=None, likelihood=None, noise=None, sweeps=None):
    """A posterior whose item offsets, (chains, draws), move all predictions; its features reach no item."""
    chains, draws = np.shape(offsets)
    rng = np.random.default_rng(5)
    n_features = np.full((chains, draws), 2) if n_features is None else n_features
    likelihood = rng.standard_normal((chains, draws)) if likelihood is None else likelihood
    noise = rng.uniform(0.8, 1.0, (chains, draws)) if noise is None else noise
    tilt = np.random.default_rng(6).uniform(0.5, 1.0, ITEMS)

    def one(chain, place):
        count = int(n_features[chain, place])
        hyper = np.array([noise[chain, place], 3.0, 0.2, 2.0, 1.0, 0.5])
        user_words = np.full((USERS, 1), 2**count - 1, np.uint64)
        return Draw(
            chain, 100 + 4 * (place + 1), float(likelihood[chain, place]), user_words, np.zeros((ITEMS, 1), np.uint64),
            np.ones(count), np.full(count, 0.2), offsets[chain, place] * tilt, np.zeros(USERS),
            np.zeros(USERS, np.uint8), level_cutpoints(5), hyper,
        )  # fmt: skip

    return Posterior(2.5, [one(chain, place) for chain in range(chains) for place in range(draws)])


@pytest.fixture(scope="module")
def ratings():
    return ratings_of()


class TestVerdict:
    def test_chains_that_agree_are_good(self, rng, ratings):
        found = diagnose(made(rng.standard_normal((4, 100))), ratings)
        assert found.level == "good"
        assert found.advice() == ["No more sweeps are needed."]
        assert found.reasons()[0].startswith("The chains agree on predictions (largest R-hat 1.0")
        assert len(found.reasons()) == 2

    def test_k_may_differ_between_chains(self, rng, ratings):
        counts = np.repeat([[2], [3], [3], [5]], 100, axis=1)
        found = diagnose(made(rng.standard_normal((4, 100)), n_features=counts), ratings)
        assert found.level == "good"
        assert found.reasons()[-1] == "Chains differ in K (R-hat inf), which is common: features are not unique."
        assert found.to_dict()["quantities"][1]["note"] == "every chain keeps its own value"

    def test_likelihoods_may_differ_between_chains(self, rng, ratings):
        likelihood = rng.standard_normal((4, 100)) + np.array([0, 50, 0, 90])[:, None]
        found = diagnose(made(rng.standard_normal((4, 100)), likelihood=likelihood), ratings)
        assert found.level == "good"
        assert "log-likelihood (R-hat " in found.reasons()[-1]

    def test_small_differences_between_modes_are_usable(self, rng, ratings):
        modes = np.array([-0.1, 0.0, 0.05, 0.1])[:, None]
        found = diagnose(made(modes + 0.01 * rng.standard_normal((4, 100)), noise=np.full((4, 100), 0.9)), ratings)
        assert found.level == "usable"
        assert "The chains disagree on 50 of 50 predictions" in found.reasons()[0]
        assert "run 8" in found.advice()[0]

    def test_large_differences_between_modes_ask_for_chains(self, rng, ratings):
        modes = np.array([-1.5, 0.0, 0.5, 1.5])[:, None]
        found = diagnose(made(modes + 0.01 * rng.standard_normal((4, 100))), ratings)
        assert found.level == "run longer"
        chains = int(found.advice()[0].rsplit(maxsplit=1)[1].rstrip("."))
        assert found.advice()[0].startswith("More chains help more than longer ones")
        assert chains == math.ceil(4 * (found.error / 0.1) ** 2) > 8

    def test_modes_are_seen_only_if_draws_stay_in_their_chain(self, rng, ratings):
        modes = np.array([-1.5, 0.0, 0.5, 1.5])[:, None] + 0.01 * rng.standard_normal((4, 100))
        mixed = rng.permutation(modes.ravel()).reshape(4, 100)
        assert diagnose(made(modes), ratings).level == "run longer"
        assert diagnose(made(mixed), ratings).level == "good"

    def test_slow_chains_ask_for_sweeps(self, rng, ratings):
        noise = rng.uniform(0.8, 1.0, (4, 100))
        found = diagnose(made(0.2 * autoregressive(rng, (4, 100), 0.8), noise=noise), ratings)
        assert found.level == "usable"
        assert 20 < found.least_ess < 100
        more = int(found.advice()[0].split()[2])
        assert 400 <= more <= 1600

    def test_a_noise_scale_that_is_not_settled(self, rng, ratings):
        noise = 0.9 + 1e-4 * (rng.standard_normal((4, 100)) + 9 * np.arange(4)[:, None])
        found = diagnose(made(rng.standard_normal((4, 100)), noise=noise), ratings)
        assert found.level == "usable"
        assert any("The noise scale is not settled" in reason for reason in found.reasons())

    def test_a_likelihood_that_still_rises(self, rng, ratings):
        rising = rng.standard_normal((4, 100)) + np.linspace(0, 6, 100)
        found = diagnose(made(rng.standard_normal((4, 100)), likelihood=rising), ratings)
        assert found.level == "run longer"
        assert "still rises" in found.reasons()[0]
        assert found.advice() == ["Run about 1000 sweeps per chain, half of them as warm-up."]
        falling = diagnose(made(rng.standard_normal((4, 100)), likelihood=rising[:, ::-1]), ratings)
        assert falling.level == "good"

    def test_too_few_draws(self, rng, ratings):
        found = diagnose(made(rng.standard_normal((4, 7))), ratings)
        assert found.level == "run longer"
        assert found.reasons() == ["Only 7 draw(s) per chain: too few to compare (8 are needed)."]
        assert found.advice() == ["Run about 180 more sweeps per chain, for 50 draws of each."]
        assert found.to_dict()["predictions"][0]["note"] == "too few draws"
        assert diagnose(made(rng.standard_normal((1, 1))), ratings).level == "run longer"

    def test_one_chain_is_never_good(self, rng, ratings):
        found = diagnose(made(rng.standard_normal((1, 400))), ratings)
        assert found.level == "usable"
        assert found.reasons()[0].startswith("One chain only")
        assert found.advice() == ["Run 4 chains."]

    def test_unequal_chains_are_cut_to_the_shortest(self, rng, ratings):
        offsets = rng.standard_normal((4, 120))
        whole = made(offsets)
        uneven = replace(whole, draws=[draw for draw in whole if draw.chain < 3 or draw.sweep <= 500])
        found, cut = diagnose(uneven, ratings), diagnose(made(offsets), ratings)
        assert found.draws_per_chain == 100
        assert "only the first 100 draws" in found.reasons()[0]
        assert [chain.draws for chain in found.chains] == [120, 120, 120, 100]
        shorter = replace(whole, draws=[draw for draw in whole if draw.sweep <= 500])
        assert found.probes == diagnose(shorter, ratings).probes != cut.probes

    def test_nothing_moves(self, ratings):
        zeros = np.zeros((2, 20))
        found = diagnose(made(zeros, noise=zeros + 0.9, likelihood=zeros), ratings)
        assert found.level == "good"
        assert "(largest R-hat 1.00)" in found.reasons()[0]
        assert {quantity["note"] for quantity in found.to_dict()["quantities"]} == {"constant"}

    def test_errors_count_in_levels(self, rng):
        posterior = made(rng.standard_normal((4, 100)))
        whole, halves, text = (diagnose(posterior, ratings_of(x)) for x in ("1..5", "1..3:0.5", "a<b<c<d<e"))
        assert whole.error == pytest.approx(halves.error) == pytest.approx(text.error)
        assert whole.probes[0].found.mean == pytest.approx(2 * halves.probes[0].found.mean - 1)
        assert whole.probes == text.probes


@pytest.fixture(scope="module")
def fitted():
    design = Design(users=30, items=20, tau=0.5)
    train = simulate(design, seed=3)[0].split(0.2, seed=1)[0]
    priors = replace(design.priors(), learn=("mass",), user_offsets=True)
    schedule = df.Schedule(sweeps=60, warmup=20, thin=2, chains=2, threads=1)
    return sample(train, priors, schedule, seed=1), train


class TestDiagnose:
    def test_probes_by_hand(self, fitted):
        posterior, train = fitted
        probes = draw_probes(train, 15, seed=2)
        table = probe_means(posterior, train, probes)
        assert table.shape == (2, 20, 15)
        for chain, draws in enumerate(posterior.chains):
            for place, draw in enumerate(draws):
                parameters = parameters_of(draw.to_state())
                scores = parameters.scores(probes.users, probes.items, posterior.base)
                expected = level_probabilities(scores, parameters.noise, draw.cutpoints) @ np.arange(1.0, 6.0)
                np.testing.assert_allclose(table[chain, place], expected, atol=1e-10)
        overall = predict_levels(posterior, probes.users, probes.items) @ np.arange(1.0, 6.0)
        np.testing.assert_allclose(table.mean(axis=(0, 1)), overall, atol=1e-10)

    def test_probes_are_fixed_by_the_seed(self, fitted):
        _, train = fitted
        one, same, other = (draw_probes(train, 50, seed) for seed in (0, 0, 1))
        assert all(map(np.array_equal, one, same))
        assert not all(map(np.array_equal, one, other))
        assert len(set(zip(*map(np.ndarray.tolist, one), strict=True))) == 50
        assert draw_probes(train, 10**6, 0).users.size == train.n_users * train.n_items

    def test_quantities_are_those_of_the_draws(self, fitted):
        found = diagnose(*fitted)
        posterior = fitted[0]
        assert [one.name for one in found.quantities] == ["log_likelihood", "K", "noise_scale", "mass"]
        columns = ([d.log_likelihood for d in posterior], posterior.n_features, posterior.noise)
        for quantity, column in zip(found.quantities, columns, strict=False):
            assert quantity.found == judge(np.reshape(column, (2, 20)))
        assert [chain.n_features for chain in found.chains] == [
            np.mean([draw.n_features for draw in chain]) for chain in posterior.chains
        ]
        assert found.thin == 2
        assert found.last_sweep == 60

    def test_moves_are_summed_over_chains(self, fitted):
        posterior, train = fitted
        moves = {move.move: move for move in diagnose(posterior, train).moves}
        place = posterior.traces[0].move_names.index("birth")
        tallies = [trace.tally[place].tolist() for trace in posterior.traces]
        birth = moves["birth"]
        assert list(zip(birth.chain_tries, birth.chain_accepted, strict=True)) == [tuple(tally) for tally in tallies]
        assert birth.share == sum(a for _, a in tallies) / sum(t for t, _ in tallies)
        assert diagnose(Posterior(posterior.base, posterior.draws), train).moves == []

    def test_a_move_never_tried_has_no_share(self, rng, ratings):
        posterior = made(rng.standard_normal((2, 20)))
        trace = Trace(0, np.zeros(1), np.zeros(1, np.int64), np.ones((1, 6)), np.zeros((1, 2), np.int64), ("split",))
        found = diagnose(replace(posterior, traces=[trace]), ratings)
        assert found.moves[0].share is None
        assert found.lines()[-1] == "split      0         0"

    def test_json(self, fitted, rng, ratings):
        for found in (diagnose(*fitted), diagnose(made(rng.standard_normal((1, 1))), ratings)):
            plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
            assert plain["level"] == found.level
            assert len(plain["predictions"]) == 50
            assert {"user", "item", "rhat", "ess_bulk", "ess_tail", "mcse"} <= plain["predictions"][0].keys()

    def test_plain_text(self, fitted):
        found = diagnose(*fitted)
        lines = found.lines()
        assert lines[0] == f"Verdict: {found.level}"
        for start in ("log likelihood ", "K ", "noise scale ", "worst of 50: ", "chain ", "birth "):
            assert any(line.startswith(start) for line in lines), start
        assert all(line == line.rstrip() and "\n" not in line for line in lines)
        blocks = [list(block) for empty, block in itertools.groupby(lines, lambda line: not line) if not empty]
        assert [len(block) for block in blocks][1:] == [1 + 4 + 2 + 1, 1 + 2, 1 + len(found.moves)]

    def test_refusals(self, fitted, ratings):
        posterior, train = fitted
        with pytest.raises(RatingsError) as problem:
            diagnose(posterior, ratings)
        assert message(problem).startswith("the draws have 30 users, 20 items and 5 levels, the ratings 12, 9 and 5.")
        with pytest.raises(SettingsError, match="holds no draws"):
            diagnose(Posterior(2.5), train)
        with pytest.raises(SettingsError, match="n_probes"):
            diagnose(posterior, train, n_probes=0)
        with pytest.raises(SettingsError, match="seed"):
            diagnose(posterior, train, seed=-1)
