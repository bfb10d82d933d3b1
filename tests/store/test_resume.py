import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

from doublefeature.config import Moves, Priors, Schedule
from doublefeature.errors import EnvironmentProblem, SettingsError, StoreError
from doublefeature.inference import fit
from doublefeature.inference.chain import sample
from doublefeature.inference.fit import extend, fit_into, stop_on_signals
from doublefeature.posterior.store import ModelFolder, draws_digest
from doublefeature.studies.recovery import Design, simulate
from tests.examples import message
from tests.store.cases import QuickDisk, parts, same, undisturbed


@pytest.fixture(scope="module")
def long_run():
    """A model of 60 sweeps, and the digest of its draws when nothing interrupts them."""
    ratings = simulate(Design(users=30, items=20, tau=0.5), seed=3)[0].split(0.2, seed=1)[0]
    schedule = Schedule(sweeps=60, warmup=10, thin=3, chains=2, threads=1)
    model = parts(ratings=ratings, schedule=schedule, moves=Moves())
    return model, undisturbed(model)


def begin(path, model, **changes):
    schedule = replace(model["schedule"], **changes)
    return ModelFolder.create(path, disk=QuickDisk(), **{**model, "schedule": schedule})


class TestResume:
    def test_three_parts_equal_the_whole_with_any_threads(self, long_run, tmp_path):
        model, whole = long_run
        folder = begin(tmp_path / "model", model, sweeps=20)
        assert fit_into(folder, checkpoint_seconds=0.0, threads=1)
        for sweeps, threads in ((40, 2), (60, 1)):
            folder = ModelFolder.open(tmp_path / "model", disk=QuickDisk())
            extend(folder, sweeps)
            assert not folder.finished
            assert fit_into(folder, checkpoint_seconds=0.02, threads=threads)
        found = ModelFolder.open(tmp_path / "model").posterior()
        assert draws_digest(found) == draws_digest(whole)
        assert all(same(one, two) for one, two in zip(found.traces, whole.traces, strict=True))

    def test_the_test_sees_a_resume_point_that_is_off(self, long_run, tmp_path, monkeypatch):
        model, whole = long_run

        def next_sweep(state, sweep):
            return start(state, sweep + 1)

        def moved_offset(state, sweep):
            offsets = state.user_offset.copy()
            offsets[0] += 1e-12
            return start(state._replace(user_offset=offsets), sweep)

        start = fit.Start
        for wrong in (next_sweep, moved_offset):
            folder = begin(tmp_path / wrong.__name__, model, sweeps=40)
            fit_into(folder)
            extend(folder, 60)
            monkeypatch.setattr(fit, "Start", wrong)
            if wrong is next_sweep:
                with pytest.raises(StoreError, match="not those of its trace"):
                    fit_into(folder)
            else:
                fit_into(folder)
                assert len(folder.posterior()) == len(whole)
                assert draws_digest(folder.posterior()) != draws_digest(whole)
            monkeypatch.undo()

    def test_more_than_64_features(self, tmp_path):
        ratings = simulate(Design(users=40, items=15, tau=0.3), seed=3)[0].split(0.6, seed=1)[0]
        schedule = Schedule(sweeps=24, warmup=0, thin=1, chains=1, threads=1)
        priors = Priors(mass=60.0, item_rate=0.1, effect_sd=0.3)
        model = parts(ratings=ratings, schedule=schedule, priors=priors, moves=Moves(settle=0))
        whole = undisturbed(model)
        assert whole.n_features.max() > 64
        folder = begin(tmp_path / "model", model, sweeps=3)
        for sweeps in range(3, 25, 7):
            extend(folder, sweeps)
            fit_into(folder)
        assert draws_digest(folder.posterior()) == draws_digest(whole)

    def test_a_model_saved_from_memory_goes_on_like_any_other(self, long_run, tmp_path):
        model, whole = long_run
        short = {**model, "schedule": replace(model["schedule"], sweeps=40)}
        folder = ModelFolder.save(tmp_path / "model", undisturbed(short), disk=QuickDisk(), **short)
        extend(folder, 60)
        assert fit_into(folder)
        assert draws_digest(folder.posterior()) == draws_digest(whole)

    def test_a_finished_folder_is_left_alone(self, tmp_path):
        folder = begin(tmp_path / "model", parts())
        assert fit_into(folder)
        before = {file: file.stat().st_mtime_ns for file in (tmp_path / "model").rglob("*")}
        assert fit_into(ModelFolder.open(tmp_path / "model"))
        assert {file: file.stat().st_mtime_ns for file in (tmp_path / "model").rglob("*")} == before
        extend(folder, 12)
        with pytest.raises(SettingsError, match="12 sweeps per chain"):
            extend(folder, 11)

    def test_checkpoints_are_spaced_by_time_and_by_share(self, tmp_path, monkeypatch):
        monkeypatch.setattr(fit, "LEAST_SHARE", 4)
        folder = begin(tmp_path / "model", parts(), chains=1)
        fit_into(folder, checkpoint_seconds=0.0)
        assert [segment.sweeps for segment in folder._manifest.chains[0].segments] == [1, 1, 1, 1, 2, 2, 3, 1]
        other = begin(tmp_path / "other", parts(), chains=1)
        fit_into(other, checkpoint_seconds=3600.0)
        assert [segment.sweeps for segment in other._manifest.chains[0].segments] == [12]

    def test_leftovers_are_ignored_and_then_removed(self, tmp_path):
        model = parts()
        folder = begin(tmp_path / "model", model, sweeps=6)
        fit_into(folder)
        chain = tmp_path / "model" / "chain-0"
        left = [chain / "segment-00001.safetensors", chain / "resume-00002.safetensors.partial"]
        left += [tmp_path / "model" / "manifest.json.partial"]
        kept = [tmp_path / "model" / "notes.partial", chain / "segment.txt"]
        for file in (*left, *kept):
            file.write_text("half")
        again = ModelFolder.open(tmp_path / "model")
        extend(again, 12)
        assert not any(file.exists() for file in left)
        assert all(file.exists() for file in kept)
        fit_into(again)
        assert draws_digest(again.posterior()) == draws_digest(undisturbed(model))
        assert sorted(file.name for file in chain.glob("resume*")) == ["resume-00002.safetensors"]


class TestStop:
    def test_a_stopped_run_keeps_what_it_made(self, tmp_path):
        model = parts()
        folder = begin(tmp_path / "model", model)
        stop = threading.Event()

        def watch(news):
            if (news.chain, news.sweep) == (0, 7):
                stop.set()

        assert not fit_into(folder, progress=watch, stop=stop)
        assert ModelFolder.open(tmp_path / "model").sweeps_done == [7, 0]
        assert not fit_into(folder, stop=stop)
        stop.clear()
        assert fit_into(folder, stop=stop)
        assert draws_digest(folder.posterior()) == draws_digest(undisturbed(model))

    def test_a_run_in_memory_stops_after_whole_sweeps_and_can_be_saved(self, tmp_path):
        model, stop = parts(), threading.Event()
        settings = [model[name] for name in ("ratings", "priors", "schedule", "moves")]
        part = sample(*settings, seed=5, stop=stop, progress=lambda news: news.sweep == 8 and stop.set())
        assert [trace.n_features.size for trace in part.traces] == [8]
        folder = ModelFolder.save(tmp_path / "model", part, disk=QuickDisk(), **model)
        assert not folder.finished
        assert fit_into(folder)
        assert draws_digest(folder.posterior()) == draws_digest(undisturbed(model))

    def test_a_failing_chain_stops_the_others_after_a_whole_sweep(self, tmp_path):
        model = parts(schedule=Schedule(sweeps=10**6, warmup=4, thin=2, chains=2, threads=2))
        folder = begin(tmp_path / "model", model)

        def fail(news):
            if (news.chain, news.sweep) == (1, 5):
                raise BrokenPipeError("the reader has gone")

        with pytest.raises(BrokenPipeError):
            fit_into(folder, progress=fail, checkpoint_seconds=0.0)
        done = ModelFolder.open(tmp_path / "model").sweeps_done
        assert done[1] == 4
        assert done[0] > 0

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals_set_the_event(self, tmp_path, number):
        model = parts()
        folder = begin(tmp_path / "model", model)
        before = signal.getsignal(number)

        def watch(news):
            if (news.chain, news.sweep) == (1, 5):
                os.kill(os.getpid(), number)
                assert stop.wait(5)

        with stop_on_signals() as stop:
            assert not fit_into(folder, progress=watch, stop=stop)
        assert signal.getsignal(number) is before
        assert ModelFolder.open(tmp_path / "model").sweeps_done == [12, 5]
        assert fit_into(folder)
        assert draws_digest(folder.posterior()) == draws_digest(undisturbed(model))

    def test_a_second_interrupt_raises(self):
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.is_set()
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def test_elsewhere_than_in_the_main_thread_it_is_just_an_event(self):
        found = []

        def use():
            with stop_on_signals() as stop:
                found.append(stop.is_set())

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert found == [False]


class TestTwoAtOnce:
    def test_a_second_writer_is_refused(self, tmp_path):
        folder = begin(tmp_path / "model", parts())
        with folder.writing():
            with pytest.raises(EnvironmentProblem, match="another run is writing") as problem:
                fit_into(ModelFolder.open(tmp_path / "model"))
            message(problem)
        assert fit_into(folder)

    def test_a_folder_object_catches_up_with_what_another_has_written(self, tmp_path):
        model = parts()
        one = begin(tmp_path / "model", model, sweeps=6)
        two = ModelFolder.open(tmp_path / "model", disk=QuickDisk())
        fit_into(one)
        extend(two, 12)
        fit_into(two)
        assert draws_digest(two.posterior()) == draws_digest(undisturbed(model))

    def test_reading_while_another_writes(self, tmp_path):
        model = parts(schedule=Schedule(sweeps=60, warmup=4, thin=2, chains=1, threads=1))
        folder = begin(tmp_path / "model", model)
        whole = [draw.log_likelihood for draw in undisturbed(model)]
        seen = []
        writer = threading.Thread(target=fit_into, args=(folder,), kwargs={"checkpoint_seconds": 0.01})
        writer.start()
        while writer.is_alive():
            values = [draw.log_likelihood for draw in ModelFolder.open(tmp_path / "model").posterior()]
            assert values == whole[: len(values)]
            seen.append(len(values))
        writer.join()
        assert seen == sorted(seen)


def test_moves_of_another_version(tmp_path):
    folder = begin(tmp_path / "model", parts(), sweeps=6)
    fit_into(folder)
    trace = folder.posterior().traces[0]
    extend(folder, 12)
    with pytest.raises(StoreError, match="other moves"):
        folder.append(trace._replace(move_names=("birth",), tally=np.zeros((1, 2), np.int64)), [], None)
