import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from doublefeature.errors import EnvironmentProblem
from doublefeature.evaluation.peers import fitting
from doublefeature.evaluation.peers.base import THREADS, Answer
from doublefeature.evaluation.peers.child import Message, TookTooLong, ask_child, peak_megabytes
from doublefeature.evaluation.peers.fitting import Pairs, fit_apart
from doublefeature.evaluation.peers.registry import KNOWN
from doublefeature.ratings import Ratings


@pytest.fixture
def tiny():
    return Ratings.from_triples(
        ["a", "a", "b", "c"], ["x", "y", "x", "y"], ["low", "high", "mid", "mid"], levels="low<mid<high"
    )


def test_messages_come_back_as_they_went():
    message = Message({"a": np.arange(3, dtype=np.uint8), "b": np.array([[np.nan, 1.0]])}, {"n": [1, "é", None]})
    again = Message.unpack(message.pack())
    assert again.note == message.note
    assert set(again.arrays) == {"a", "b"}
    for name, array in message.arrays.items():
        assert again.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(again.arrays[name], array)


def test_a_child_that_takes_too_long_is_ended():
    with pytest.raises(TookTooLong, match=r"the work did not finish in 2 tries, the last of 0 s\. Allow more time"):
        ask_child("fitting:_fit_here", Message({}, {}), seconds=1e-3, what="the work", tries=2)


_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""
_CHILD = """
import time
from doublefeature.evaluation.peers.child import _end_with_parent
_end_with_parent()
time.sleep(60)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_child_ends_with_its_parent():
    command = [sys.executable, "-c", _PARENT, _CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip()
        time.sleep(2.0)
        parent.kill()
    for _ in range(100):
        if not child.exists() or (child / "stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the child is still there")


def test_a_child_that_fails():
    with pytest.raises(EnvironmentProblem, match=r"the work ended with code 1: KeyError: 'fits'"):
        ask_child(
            "libmf:factorise_folds",
            Message({name: np.zeros(1) for name in ("users", "items", "values")}, {}),
            seconds=60,
            what="the work",
        )


def test_an_error_of_ours_arrives_as_its_message(tiny):
    with pytest.raises(EnvironmentProblem, match=r"doublefeature: unknown preset 'none'\. Choose among"):
        fit_apart(KNOWN["doublefeature"], tiny, Pairs.of(tiny), {"preset": "none"}, seed=0)


def test_memory_is_the_childs_own(tiny):
    before = peak_megabytes()
    ballast = np.ones(100_000_000)
    fit = fit_apart(KNOWN["constant"], tiny, Pairs.of(tiny), {}, seed=0)
    assert peak_megabytes() > before + 500.0
    assert 20.0 < fit.usage.peak_megabytes < peak_megabytes() - 400.0
    assert ballast.size == 100_000_000


@pytest.mark.parametrize("wanted", [0, 1, 3, 4, 7])
def test_levels_for_the_first_pairs_only(wanted, monkeypatch):
    monkeypatch.setattr(fitting, "_BATCH", 3)
    pairs = Pairs(np.arange(7), np.arange(7))

    def fitted(users, items):
        return Answer(users + 0.5, np.stack([users, items], axis=1).astype(float))

    found = fitting._answers(fitted, pairs, wanted)
    np.testing.assert_array_equal(found["points"], np.arange(7) + 0.5)
    np.testing.assert_array_equal(found["proba"][:, 0], np.arange(wanted))


def test_text_levels_and_their_order_reach_the_child(tiny):
    fit = fit_apart(KNOWN["constant"], tiny, Pairs.of(tiny), {}, seed=0)
    assert fit.answer.proba is not None
    np.testing.assert_allclose(fit.answer.proba[0], np.array([2, 3, 2]) / 7)
    np.testing.assert_allclose(fit.answer.points, 2.0)


def test_grades_that_fall_are_taken_as_declared():
    grades = Ratings.from_triples([1, 2], [1, 1], [3, 1], levels="3<2<1")
    fit = fit_apart(KNOWN["constant"], grades, Pairs.of(grades), {}, seed=0)
    assert fit.answer.proba is not None
    np.testing.assert_allclose(fit.answer.proba[0], np.array([2, 1, 2]) / 5)


def test_threads_reach_the_child(tiny, monkeypatch):
    seen = {}

    def stop(command, **options):
        seen.update(options["env"])
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.run", stop)
    with pytest.raises(KeyboardInterrupt):
        fit_apart(KNOWN["constant"], tiny, Pairs.of(tiny), {}, seed=0, threads=3)
    assert seen[THREADS] == seen["OPENBLAS_NUM_THREADS"] == "3"
