"""Shards: who is where, the same draws by any engine and after any break, and files that are checked."""

from __future__ import annotations

import json
import shutil
import threading
from collections import deque

import numpy as np
import pytest

from doublefeature.config import Schedule, Sharding
from doublefeature.errors import DoubleFeatureError, SettingsError, StoreError
from doublefeature.inference.engines import Outcome, SerialEngine, Task
from doublefeature.inference.processes import ProcessEngine
from doublefeature.posterior.disk import Disk
from doublefeature.posterior.shard_users import ratings_of, split_users
from doublefeature.posterior.sharding import ShardedFolder, is_sharded
from doublefeature.sharded import ShardedDoubleFeature, load
from tests.inference.sharded_models import RATINGS, SCHEDULE, digests, fit


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("shards") / "model"
    fit(out)
    return out


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done, tmp_path / "copy")


class TestSplit:
    @pytest.mark.parametrize("shards", [1, 2, 7, 40])
    def test_everybody_is_in_one_shard(self, shards):
        parts = split_users(40, shards, seed=3)
        assert sorted(np.concatenate(parts).tolist()) == list(range(40))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1

    def test_the_seed_decides(self):
        one, two, other = (split_users(40, 4, seed) for seed in (3, 3, 4))
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))

    def test_more_shards_than_users(self):
        with pytest.raises(SettingsError, match="at most 3"):
            split_users(3, 4, seed=0)

    def test_ratings_of_some_users(self):
        codes = np.array([3, 8, 20])
        part = ratings_of(RATINGS, codes)
        assert list(part.items) == list(RATINGS.items)
        for user in codes.tolist():
            assert part.rated_items(RATINGS.users[user]) == RATINGS.rated_items(RATINGS.users[user])


class Backwards(SerialEngine):
    """Runs what came last first, and every task fails once after it is done."""

    def __init__(self):
        super().__init__()
        self._waiting: deque[Task] = deque()
        self._failed: set[str] = set()

    def submit(self, task):
        self._waiting.appendleft(task)

    def collect(self, seconds):
        outcome = super().collect(seconds)
        if outcome.task.name not in self._failed:
            self._failed.add(outcome.task.name)
            return Outcome(outcome.task, RuntimeError("lost on the way back"))
        return outcome


class TestSameDraws:
    def test_in_any_order_and_when_tasks_are_run_again(self, done, tmp_path):
        fit(tmp_path / "other", engine=Backwards())
        assert digests(tmp_path / "other") == digests(done)

    @pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.slow)])
    def test_in_other_processes_one_of_which_is_killed(self, shards, tmp_path):
        fit(tmp_path / "here", shards)
        engine = ProcessEngine(2)
        killed = []

        def kill():
            while not list((tmp_path / "other").glob("shards/*/manifest.json")):
                if stop.wait(0.05):
                    return
            for child in engine._children[:1]:
                child.process.kill()
                killed.append(child.task.name)

        stop = threading.Event()
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            fit(tmp_path / "other", shards, engine=engine)
        finally:
            stop.set()
            killer.join()
            engine.close()
        assert killed
        assert digests(tmp_path / "other") == digests(tmp_path / "here")

    def test_another_seed_gives_others(self, done, tmp_path):
        model = ShardedDoubleFeature(Sharding(3), preset="paper", seed=6, schedule=SCHEDULE)
        model.fit(RATINGS, out=tmp_path / "other", holdout=0.1)
        assert set(digests(tmp_path / "other")[:6]).isdisjoint(digests(done)[:6])

    def test_stopped_and_resumed(self, done, tmp_path):
        stop = threading.Event()
        calls = []

        def watch(news):
            calls.append(news)
            if len(calls) == 60:
                stop.set()

        out = tmp_path / "other"
        model = ShardedDoubleFeature(Sharding(3), preset="paper", seed=5, schedule=SCHEDULE)
        model.fit(RATINGS, out=out, holdout=0.1, progress=watch, stop=stop)
        assert not model.finished_
        with pytest.raises(DoubleFeatureError, match="resume"):
            load(out).predict([(0, 0)])
        assert {news.chain for news in calls} <= set(range(6))
        assert ShardedDoubleFeature.resume(out).finished_
        assert digests(out) == digests(done)

    def test_made_longer(self, done, copy, tmp_path):
        longer = Schedule(**{**SCHEDULE.to_dict(), "sweeps": 32})
        ShardedDoubleFeature.resume(copy, sweeps=32)
        fit(tmp_path / "other", schedule=longer)
        assert digests(copy) == digests(tmp_path / "other")
        assert {path.name for path in copy.glob("merged-*")} >= {"merged-00032"}
        with pytest.raises(SettingsError, match="fewer"):
            ShardedDoubleFeature.resume(copy, sweeps=10)

    def test_broken_between_any_two_writes(self, done, tmp_path):
        """What is written after the shards: a kill at any operation leaves a folder that resumes to the same draws."""
        wanted = digests(done)
        for operation in (1, 4):
            out = shutil.copytree(done, tmp_path / f"cut{operation}")
            folder = ShardedFolder.open(out)
            consensus = folder.consensus()
            shutil.rmtree(folder.merged_path(0).parent)
            with folder.writing():
                folder._replace(
                    folder._manifest.__class__(folder._manifest.library, folder.sharding, folder.fingerprints)
                )
            folder = ShardedFolder.open(out, disk=Failing(operation))
            with pytest.raises(DoubleFeatureError):
                folder.write_consensus(consensus)
            assert not load(out).finished_
            ShardedDoubleFeature.resume(out)
            assert digests(out) == wanted


class Failing(Disk):
    """Stops at its n-th operation."""

    def __init__(self, n):
        self.left = n

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")

    def create(self, path):
        self._step()
        return super().create(path)

    def sync(self, handle):
        self._step()
        super().sync(handle)

    def replace(self, source, target):
        self._step()
        super().replace(source, target)


class TestFolder:
    def test_shards_are_model_folders(self, done):
        assert is_sharded(done)
        for part in ("shards/00", "merged-00024/02"):
            assert len(load(done / part).posterior_) == 16
        assert not is_sharded(done / "shards" / "00")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda text: text[:-20], "JSON"),
            (lambda text: text.replace(b"precision", b"precisiom"), "checksum"),
            (lambda text: text.replace(b'"version": 1', b'"version": 9'), "version"),
            (lambda text: b"{}", "does not describe"),
        ],
    )
    def test_a_damaged_manifest_is_refused(self, copy, change, says):
        file = copy / "sharding.json"
        file.write_bytes(change(file.read_bytes()))
        with pytest.raises(StoreError, match=says) as caught:
            load(copy)
        assert "\n" not in str(caught.value)

    def test_every_flipped_byte_of_the_merged_offsets_is_seen(self, copy):
        file = next(copy.glob("consensus-*.safetensors"))
        content = file.read_bytes()
        for place in np.linspace(0, len(content) - 1, 20).astype(int).tolist():
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(StoreError, match="consensus"):
                ShardedFolder.open(copy).consensus()

    def test_a_shard_of_another_model_is_refused(self, copy):
        shutil.rmtree(copy / "merged-00024" / "01")
        shutil.copytree(copy / "merged-00024" / "00", copy / "merged-00024" / "01")
        with pytest.raises(StoreError, match="not shard 1"):
            ShardedFolder.open(copy).merged(1)

    def test_settings_are_kept(self, done):
        told = json.loads((done / "sharding.json").read_text())
        assert told["sharding"] == Sharding(3).to_dict()
        assert len(told["fingerprints"]) == 3

    def test_the_folder_must_be_new(self, done):
        with pytest.raises(StoreError, match="holds a model already"):
            fit(done)
