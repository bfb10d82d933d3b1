"""Fold-in of a row against a draw: the exact posterior, and what it is told of the draw."""

import numpy as np
import pytest

from doublefeature.inference.evidence import effective_number, log_evidence
from doublefeature.inference.fold_kernel import level_slopes, log_level
from doublefeature.model.ordinal import level_cutpoints, level_log_slopes
from doublefeature.model.state import members
from tests.posterior.exact_fold import exact, folded, largest_z, make_case, sampled

CASES = {
    "paper": {"features": 6, "sd": 0.0, "offset_sd": 0.0, "packed": False},
    "offsets": {"features": 6, "sd": 0.0, "packed": True},
    "grades": {"features": 3, "offset_sd": 0.0},
    "grades, offset, scales": {"features": 2, "scales": 3},
    "remainder": {"features": 1, "rank": 1},
    "remainder alone": {"features": 0, "rank": 2},
    "two levels": {"features": 3, "levels": 2, "offset_sd": 0.0, "ratings": 12},
    "no ratings": {"features": 3, "ratings": 0},
}
STANDARD_ERRORS = 4.0


@pytest.fixture(scope="module", params=CASES, ids=str)
def solved(request):
    case = make_case(list(CASES).index(request.param), **CASES[request.param])
    return case, exact(case)


def test_exact_posterior(solved):
    case, truth = solved
    assert largest_z(case, truth) < STANDARD_ERRORS


def test_ten_features():
    case = make_case(21, features=10, ratings=10, sd=0.0, offset_sd=0.0)
    assert largest_z(case, exact(case)) < STANDARD_ERRORS


WRONG = {
    "odds": lambda prior: prior._replace(log_odds=prior.log_odds + 0.3),
    "centre": lambda prior: prior._replace(centre=prior.centre + 0.3),
    "spread of strengths": lambda prior: prior._replace(sd=prior.sd**2),
    "mean of offset": lambda prior: prior._replace(offset_mean=0.0),
    "spread of offset": lambda prior: prior._replace(offset_sd=prior.offset_sd**2),
    "scales": lambda prior: prior._replace(scale_logs=np.full(3, -np.log(3.0))),
}


@pytest.mark.parametrize("part", WRONG)
def test_check_sees_a_wrong_prior(part):
    case = make_case(3, **CASES["grades, offset, scales"])
    truth = exact(case)
    assert largest_z(case, truth) < STANDARD_ERRORS
    assert largest_z(case._replace(prior=WRONG[part](case.prior)), truth) > STANDARD_ERRORS


def test_check_sees_a_wrong_likelihood():
    case = make_case(4, **CASES["remainder"])
    truth = exact(case)
    wrong = case._replace(rated=case.rated._replace(noise=1.25 * case.rated.noise))
    assert largest_z(case._replace(prior=case.prior._replace(factor_sd=0.25)), truth) > STANDARD_ERRORS
    assert largest_z(wrong, truth) > STANDARD_ERRORS


def test_scans_are_needed_and_enough():
    """The greedy start alone is far from the posterior; the default number of scans is not."""
    case = make_case(5, features=8, ratings=12, sd=0.0)
    truth = exact(case)
    assert largest_z(case, truth, scans=0) > STANDARD_ERRORS
    assert largest_z(case, truth, copies=2_000) < STANDARD_ERRORS


def test_more_than_a_word_of_features():
    """Features beyond the first 64 count as any other."""
    case = make_case(6, features=70, ratings=9)
    some = sampled(case, 400)
    assert some[:, :70].any(axis=0)[64:].any()
    empty = case._replace(prior=case.prior._replace(log_odds=np.full(70, -np.inf)))
    assert not sampled(empty, 5)[:, :70].any()


def test_same_bytes_for_the_same_key():
    case = make_case(7)
    one, two, other = folded(case, 50), folded(case, 50), folded(case, 50, key=6)
    assert all(np.array_equal(a, b) for a, b in zip(one[3:], two[3:], strict=True))
    assert np.array_equal(one.words, two.words)
    assert not np.array_equal(one.offset, other.offset)


def test_tabulated_tails_are_exact_enough(rng):
    cutpoints = level_cutpoints(5)
    for _ in range(3_000):
        told = int(rng.integers(5)), float(rng.normal(2.5, 4.0)), float(rng.uniform(0.1, 1.5)), cutpoints
        wanted = np.array(level_log_slopes(*told))
        assert np.allclose(level_slopes(*told), wanted, rtol=1e-7, atol=1e-7)
        assert log_level(*told) == pytest.approx(wanted[0], rel=1e-7, abs=1e-8)


def evidence_of(case):
    greedy = folded(case, 1, scans=0)
    inside = members(greedy.words, np.arange(case.prior.log_odds.size))[0]
    return log_evidence(case.others, case.prior, case.rated, inside)


class TestEvidence:
    def test_near_the_exact_one(self, solved):
        case, truth = solved
        assert evidence_of(case) == pytest.approx(truth.evidence, abs=0.5)

    def test_differences_between_draws(self):
        """Over draws, which is what weights are made of, it follows the truth; with wrong odds it would not."""
        cases = [make_case(seed, features=3, offset_sd=0.0) for seed in range(30, 42)]
        truth = np.array([exact(case).evidence for case in cases])
        near = np.array([evidence_of(case) for case in cases])
        assert np.abs(near - truth).max() < 0.5
        assert (near - truth).std() < 0.2
        wrong = [case._replace(prior=case.prior._replace(log_odds=np.zeros(3))) for case in cases]
        assert (np.array([evidence_of(case) for case in wrong]) - truth).std() > 0.2

    def test_effective_number(self):
        assert effective_number(np.zeros(7)) == pytest.approx(7.0)
        assert effective_number(np.array([0.0, -800.0, -900.0])) == pytest.approx(1.0)
        assert effective_number(np.log([1.0, 2.0, 3.0])) == pytest.approx(36 / 14)
