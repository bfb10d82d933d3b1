import io
import itertools
import threading

import numpy as np
import pytest

import doublefeature as df
from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.inference.chain import Start, run_chain, sample
from doublefeature.inference.progress import PlainProgress, Progress, clock, shown_progress
from doublefeature.model.state import check_state, empty_state
from doublefeature.posterior.predict import predict_levels
from doublefeature.studies.recovery import Design, recover, simulate

PRIORS = df.Priors(user_offsets=True, learn=("mass", "item_rate"))


@pytest.fixture(scope="module")
def ratings():
    full, _ = simulate(Design(users=40, items=25, tau=0.5), seed=3)
    return full.split(0.2, seed=1)[0]


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


class TestRunChain:
    def test_keeps_what_the_schedule_says(self, ratings):
        schedule = df.Schedule(sweeps=20, warmup=8, thin=3, chains=1, threads=1)
        draws = list(run_chain(ratings, PRIORS, schedule, stream=(5, 0)))
        assert [draw.sweep for draw in draws] == [11, 14, 17, 20]
        assert len(draws) == schedule.draws_per_chain
        assert draws[0].n_features == draws[0].effect.size

    def test_sweeps_left_open_go_by_the_ratings(self, ratings):
        news: list[Progress] = []
        next(run_chain(ratings, PRIORS, df.Schedule(warmup=0, thin=1), progress=news.append))
        assert news[0].sweeps == 960

    def test_a_caller_can_stop(self, ratings):
        schedule = df.Schedule(sweeps=10**6, warmup=0, thin=1, threads=1)
        assert len(list(itertools.islice(run_chain(ratings, PRIORS, schedule), 3))) == 3

    def test_going_on_from_a_draw_gives_the_uninterrupted_chain(self, ratings):
        whole = df.Schedule(sweeps=30, warmup=0, thin=1, threads=1)
        draws = list(run_chain(ratings, PRIORS, whole, stream=(5, 2)))
        start = Start(draws[11].to_state(), draws[11].sweep)
        rest = list(run_chain(ratings, PRIORS, whole, stream=(5, 2), start=start))
        assert [draw.sweep for draw in rest] == list(range(13, 31))
        assert all(same(one, two) for one, two in zip(rest, draws[12:], strict=True))

    def test_states_stay_whole(self, ratings):
        schedule = df.Schedule(sweeps=60, warmup=0, thin=10, threads=1)
        for draw in run_chain(ratings, PRIORS, schedule, stream=(9, 0)):
            check_state(draw.to_state())

    def test_a_start_of_another_size_is_refused(self, ratings):
        start = Start(empty_state(PRIORS, 3, 4, 5))
        with pytest.raises(SettingsError, match="the start has 3 users"):
            next(run_chain(ratings, PRIORS, df.Schedule(), start=start))

    @pytest.mark.parametrize("seed", ["1", 1.5, -1, None])
    def test_bad_seeds_are_refused(self, ratings, seed):
        with pytest.raises(SettingsError, match="seed"):
            sample(ratings, PRIORS, seed=seed)


class TestSample:
    def test_draws_do_not_depend_on_threads(self, ratings):
        found = []
        for threads in (1, 2):
            schedule = df.Schedule(sweeps=20, warmup=10, thin=5, chains=3, threads=threads)
            found.append(sample(ratings, PRIORS, schedule, seed=4))
        assert len(found[0]) == 6
        assert [draw.chain for draw in found[0]] == [0, 0, 1, 1, 2, 2]
        assert all(same(one, two) for one, two in zip(*found, strict=True))

    def test_chains_and_seeds_differ(self, ratings):
        schedule = df.Schedule(sweeps=20, warmup=19, thin=1, chains=2, threads=1)
        one, two = sample(ratings, PRIORS, schedule, seed=4), sample(ratings, PRIORS, schedule, seed=5)
        values = {draw.log_likelihood for draw in [*one, *two]}
        assert len(values) == 4

    def test_an_interrupt_stops_all_chains(self, ratings):
        def interrupt(news):
            if news.sweep == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sample(ratings, PRIORS, df.Schedule(sweeps=10**6, warmup=1), progress=interrupt)


class TestProgress:
    def test_news_of_every_sweep(self, ratings):
        seen: list[Progress] = []
        list(run_chain(ratings, PRIORS, df.Schedule(sweeps=5, warmup=0, threads=1), progress=seen.append))
        assert [news.sweep for news in seen] == [1, 2, 3, 4, 5]
        assert seen[-1].seconds_left == 0.0
        assert set(seen[-1].acceptance) >= {"birth", "death", "split", "merge"}

    def test_plain_lines_where_there_is_no_terminal(self, ratings):
        out = io.StringIO()
        with shown_progress(out) as progress:
            assert isinstance(progress, PlainProgress)
            list(run_chain(ratings, PRIORS, df.Schedule(sweeps=5, warmup=0, threads=1), progress=progress))
        assert out.getvalue().startswith("chain 0  sweep 5/5  K ")

    def test_bars_on_a_terminal(self, ratings):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        out = Terminal()
        with shown_progress(out) as progress:
            list(run_chain(ratings, PRIORS, df.Schedule(sweeps=5, warmup=0, threads=1), progress=progress))
        assert "chain 0" in out.getvalue()

    def test_clock(self):
        assert [clock(5), clock(62), clock(3723)] == ["0:05", "1:02", "1:02:03"]


class TestEstimator:
    def test_fit_and_predict_in_raw_ids(self):
        rows = [(f"u{u}", f"film {i}", 5 if (u < 5) == (i < 4) else 1) for u in range(10) for i in range(8)]
        held_out = ("u0", "film 0")
        rows = [row for row in rows if row[:2] != held_out]
        users, items, values = zip(*rows, strict=True)
        ratings = df.Ratings.from_triples(users, items, values, levels="1..5")
        model = df.DoubleFeature(schedule=df.Schedule(sweeps=120, warmup=60, thin=3, chains=2), seed=1)
        assert model.fit(ratings) is model
        prediction = model.predict([held_out, ("u9", "film 7")])
        assert prediction.proba.shape == (2, 5)
        assert np.allclose(prediction.proba.sum(axis=1), 1.0)
        assert prediction.mode == [5, 5]
        assert (prediction.mean > 3.5).all()
        assert (prediction.sd > 0).all()

    def test_prediction_is_the_average_over_draws_by_hand(self, ratings):
        schedule = df.Schedule(sweeps=20, warmup=10, thin=5, chains=2, threads=1)
        posterior = sample(ratings, PRIORS, schedule, seed=4)
        users, items = np.array([0, 7]), np.array([3, 11])
        total = np.zeros((2, 5))
        from doublefeature.model.ordinal import level_cutpoints, level_probabilities
        from doublefeature.model.parameters import parameters_of

        for draw in posterior:
            parameters = parameters_of(draw.to_state())
            total += level_probabilities(parameters.scores(users, items, 2.5), parameters.noise, level_cutpoints(5))
        assert np.allclose(predict_levels(posterior, users, items), total / len(posterior), atol=1e-12)

    @pytest.mark.parametrize("kept", [False, True])
    def test_a_fit_says_how_many_sweeps_it_has(self, ratings, tmp_path, kept):
        stop = threading.Event()
        stop.set()
        model = df.DoubleFeature(preset="paper", schedule=df.Schedule(chains=1))
        model.fit(ratings, out=tmp_path / "model" if kept else None, stop=stop)
        assert (model.schedule_.sweeps, model.schedule_.chains, model.finished_) == (960, 1, False)
        if kept:
            assert df.load(tmp_path / "model").schedule_ == model.schedule_

    def test_asked_too_early(self):
        with pytest.raises(NotFittedError, match="Call fit"):
            df.DoubleFeature().predict([("a", "b")])


def test_recovery_from_nothing_beats_the_trivial_rules():
    schedule = df.Schedule(sweeps=300, warmup=150, thin=5, chains=2)
    result = recover(Design(users=60, items=80), 1, schedule)
    assert result.oracle - result.model < 0.05
    assert result.model > max(result.majority, result.item_mode, result.user_mode) + 0.05
