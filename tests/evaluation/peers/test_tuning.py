import pytest

from doublefeature.evaluation.peers.registry import PEERS
from doublefeature.evaluation.peers.tuning import Search

START = {"rank": 4, "penalty": 1.0}
LADDERS = {"rank": (1, 2, 4, 8, 16), "penalty": (0.25, 0.5, 1.0, 2.0, 4.0)}


class Hill:
    """A score with one top; every question is noted."""

    def __init__(self, rank=8, penalty=0.25, slope=0.1, broken=()):
        self.top, self.slope, self.broken, self.asked = (rank, penalty), slope, broken, []

    def __call__(self, settings):
        self.asked.append(dict(settings))
        return None if dict(settings) in self.broken else self.height(settings)

    def height(self, settings):
        ranks, penalties = LADDERS.values()
        far = abs(ranks.index(settings["rank"]) - ranks.index(self.top[0]))
        return -self.slope * (far + abs(penalties.index(settings["penalty"]) - penalties.index(self.top[1])))

    @property
    def best(self):
        return max(self.asked, key=self.height)


@pytest.mark.parametrize("top", [(1, 0.25), (16, 4.0), (4, 1.0), (8, 0.5)])
def test_goes_up_and_down_until_no_step_is_better(top):
    hill = Hill(*top)
    Search([START], LADDERS).run(hill)
    assert tuple(hill.best.values()) == top


def test_every_neighbour_of_the_best_has_been_tried_and_nothing_twice():
    hill = Hill(8, 0.5)
    Search([START], LADDERS).run(hill)
    for neighbour in ((4, 0.5), (16, 0.5), (8, 0.25), (8, 1.0)):
        assert dict(zip(START, neighbour, strict=True)) in hill.asked
    assert len({tuple(one.items()) for one in hill.asked}) == len(hill.asked)


def test_goes_on_from_the_best_start():
    hill = Hill(16, 4.0)
    starts = [START, {"rank": 16, "penalty": 2.0}, {"rank": 1, "penalty": 0.25}]
    Search(starts, LADDERS).run(hill)
    assert hill.asked[:3] == starts
    assert hill.asked[3] == {"rank": 8, "penalty": 2.0}
    assert tuple(hill.best.values()) == (16, 4.0)


def test_a_gain_that_may_be_chance_is_not_followed():
    hill = Hill(16, 4.0, slope=1e-5)
    Search([START], LADDERS).run(hill)
    assert len(hill.asked) == 5


def test_what_does_not_finish_is_no_step():
    hill = Hill(8, 1.0, broken=[{"rank": 8, "penalty": 1.0}])
    Search([START], LADDERS).run(hill)
    assert {"rank": 16, "penalty": 1.0} not in hill.asked
    nothing = Hill(8, 1.0, broken=[START])
    Search([START], LADDERS).run(nothing)
    assert nothing.asked == [START]


def test_without_ladders_only_the_starts_are_tried():
    hill = Hill()
    Search([START, {"rank": 1, "penalty": 4.0}]).run(hill)
    assert hill.asked == [START, {"rank": 1, "penalty": 4.0}]
    assert not Search([START]).chooses
    assert Search([START], LADDERS).chooses


def test_ends_of_ladders_are_told_for_numbers():
    search = Search([], {**LADDERS, "offsets": (False, True)})
    assert search.ends({"rank": 16, "penalty": 0.25, "offsets": True}) == ["rank 16", "penalty 0.25"]
    assert search.ends({"rank": 8, "penalty": 0.5, "offsets": False}) == []


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_start_of_a_peer_stands_on_its_ladders_and_inside_them(peer):
    search = Search.of(peer)
    for name, ladder in peer.ladders.items():
        assert list(ladder) == sorted(set(ladder))
        assert all(start[name] in ladder for start in peer.starts)
    assert all(search.ends(start) == [] for start in peer.starts)
