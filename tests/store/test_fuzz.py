import pytest

from doublefeature.errors import StoreError
from doublefeature.posterior import loading, segments
from doublefeature.posterior.arrays import decode_arrays
from doublefeature.posterior.disk import read_file
from tests.store.fuzz import fuzz


@pytest.mark.parametrize("full", [False, True])
def test_mutated_folders(tmp_path, full):
    tally = fuzz(tmp_path / "model", 300, full=full)
    assert tally.tried == 300
    assert tally.refused > 200
    assert tally.other > 0


def test_the_fuzz_sees_a_loader_without_checksums(tmp_path, monkeypatch):
    def trusting(path, entry):
        try:
            return decode_arrays(read_file(path / entry.file, most=2**30))
        except FileNotFoundError:
            raise StoreError("it is missing") from None

    monkeypatch.setattr(loading, "read_entry", trusting)
    with pytest.raises(AssertionError, match="opened with other content"):
        fuzz(tmp_path / "model", 300)


def test_the_fuzz_sees_a_loader_that_does_not_check_values(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "_check_values", lambda arrays, sizes: None)
    with pytest.raises(AssertionError, match="opened and then raised"):
        fuzz(tmp_path / "model", 2000)


def test_the_fuzz_sees_a_loader_that_does_not_count_effects(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "_check_memberships", lambda arrays: None)
    with pytest.raises(AssertionError, match="raised"):
        fuzz(tmp_path / "model", 2000, full=True)
