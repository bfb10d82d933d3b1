import os
import random
import shutil
import signal

import pytest

from doublefeature.errors import EnvironmentProblem, StoreError
from doublefeature.inference.fit import fit_into
from doublefeature.posterior import store
from doublefeature.posterior.disk import Disk
from doublefeature.posterior.store import ModelFolder, draws_digest
from tests.store.cases import FailingDisk, QuickDisk, undisturbed
from tests.store.crash import (
    PROBLEMS,
    check_afterwards,
    check_whole_draws,
    count_operations,
    die_at,
    fail_at,
    fit_short,
    short_model,
    short_run,
)
from tests.store.cutting import cut_power, record_run
from tests.store.victim import strike, victim_model


class TestDyingAtAnOperation:
    def test_any_operation(self, tmp_path):
        last = count_operations(tmp_path)
        found = [die_at(tmp_path / str(n), n, half=bool(n % 2)) for n in range(1, last + 1, 17)]
        assert found == sorted(found)
        assert found[0] == 0
        assert found[-1] >= 4

    def test_the_check_sees_a_manifest_written_in_place(self, tmp_path, monkeypatch):
        def in_place(disk, path, pieces):
            handle = disk.create(path)
            for piece in pieces:
                disk.write(handle, memoryview(piece))
            disk.close(handle)

        monkeypatch.setattr(store, "write_file", in_place)
        with pytest.raises(StoreError, match=r"manifest\.json cannot be used"):
            self.die_somewhere(tmp_path)

    def test_the_check_sees_a_resume_point_removed_too_early(self, tmp_path, monkeypatch):
        def too_early(self, manifest):
            listed = {chain.resume.file for chain in manifest.chains if chain.resume}
            for file in self.path.glob("chain-*/resume-*"):
                if file.relative_to(self.path).as_posix() not in listed:
                    self._disk.remove(file)
            replace_manifest(self, manifest)

        replace_manifest = ModelFolder._replace_manifest
        monkeypatch.setattr(ModelFolder, "_replace_manifest", too_early)
        with pytest.raises(StoreError, match=r"resume-.* it is missing"):
            self.die_somewhere(tmp_path)

    def die_somewhere(self, path):
        for n in range(60, 200, 3):
            die_at(path / str(n), n, half=True)


class TestKill9:
    def test_three_kills_and_the_same_draws(self, tmp_path):
        path, rng = tmp_path / "model", random.Random(1)
        whole = undisturbed(victim_model(60))
        counts = []
        for attempt in range(3):
            strike(path, 60, rng.uniform(0.0, 0.25), slow=attempt == 1)
            counts.append(check_whole_draws(path, whole))
        assert counts == sorted(counts)
        folder = ModelFolder.open(path)
        assert not folder.finished
        fit_into(folder)
        assert draws_digest(ModelFolder.open(path).posterior()) == draws_digest(whole)

    def test_sigterm_ends_with_everything_written(self, tmp_path):
        path = tmp_path / "model"
        said, seconds = strike(path, 2000, 0.2, slow=False, number=signal.SIGTERM)
        assert said == "stopped"
        assert seconds < 5
        folder = ModelFolder.open(path)
        assert min(folder.sweeps_done) > 0
        assert not list(path.rglob("*.partial"))


class TestPowerCut:
    def test_some_prefixes(self, tmp_path):
        notes = record_run(tmp_path)
        outcome = cut_power(tmp_path, notes, variants=3, stride=5, resume_every=20)
        assert outcome.cuts > 60
        assert outcome.opened > 0.7 * outcome.cuts

    @pytest.mark.parametrize("forgotten", ["sync", "sync_directory"])
    def test_the_check_sees_a_forgotten_flush(self, tmp_path, forgotten):
        notes = [note for note in record_run(tmp_path) if note.name != forgotten]
        with pytest.raises(AssertionError):
            cut_power(tmp_path, notes, variants=4, stride=2)


class TestFailures:
    def test_any_operation_and_kind(self, tmp_path):
        last = count_operations(tmp_path)
        kinds = list(PROBLEMS)
        for k, n in enumerate(range(1, last + 1, 13)):
            fail_at(tmp_path / str(n), n, kinds[k % len(kinds)], for_good=bool(k % 2))

    def test_a_full_disk_keeps_the_last_checkpoint(self, tmp_path):
        last = count_operations(tmp_path)
        places = range(last // 3, last * 7 // 8, last // 8)
        draws = [fail_at(tmp_path / str(n), n, "disk full", for_good=True) for n in places]
        stopped = [count for count in draws if count < len(short_run())]
        assert len(stopped) > 2
        assert stopped == sorted(stopped)
        assert 0 < stopped[0] < stopped[-1]

    def test_going_on_with_the_same_object_once_there_is_space(self, tmp_path):
        disk = FailingDisk(70, PROBLEMS["disk full"])
        folder = ModelFolder.create(tmp_path / "model", disk=disk, **short_model())
        with pytest.raises(EnvironmentProblem, match="no space left on device"):
            fit_into(folder, checkpoint_seconds=0.0)
        assert fit_into(folder, checkpoint_seconds=0.0)
        assert draws_digest(folder.posterior()) == draws_digest(short_run())

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_made_read_only(self, tmp_path):
        fit_short(tmp_path / "model", Disk())
        (tmp_path / "model").chmod(0o500)
        with pytest.raises(EnvironmentProblem, match="permission denied"):
            ModelFolder.open(tmp_path / "model").write_card("")


def test_an_undisturbed_run_passes_the_check(tmp_path):
    fit_short(tmp_path / "model", QuickDisk())
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    assert check_afterwards(tmp_path / "copy") == len(short_run())
