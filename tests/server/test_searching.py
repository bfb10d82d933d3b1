"""Finding by what people type."""

import numpy as np
import pytest

from doublefeature.server.searching import Names

TITLES = [
    "Matrix, The (1999)",
    "Godfather, The (1972)",
    "L.A. Confidential (1997)",
    "Life Is Beautiful (La Vita è bella) (1997)",
    "Star Wars: Episode V - The Empire Strikes Back (1980)",
    "American Beauty (1999)",
    "Schindler's List (1993)",
]
IDS = [2571, 858, 1617, 2324, 1196, 2858, 527]
COUNTS = np.array([5, 4, 3, 2, 6, 9, 1])


@pytest.fixture(scope="module")
def names() -> Names:
    return Names(IDS, TITLES)


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("the matrix", 0),
        ("MATRIX THE", 0),
        ("the godfather", 1),
        ("la confidential", 2),
        ("l.a. conf", 2),
        ("vita e bella", 3),
        ("star wars empire", 4),
        ("1196", 4),
        ("schindlers", 6),
        ("Schindler’s List", 6),
    ],
)
def test_found_first(names, typed, place):
    assert names.find(typed, COUNTS)[0] == place


def test_all_words_are_needed(names):
    assert names.find("matrix empire", COUNTS) == []
    assert names.find("zzz", COUNTS) == []


def test_everything_by_count_without_words(names):
    assert names.find("  ", COUNTS) == [5, 4, 0, 1, 2, 3, 6]


def test_an_id_that_is_the_text_itself_comes_first():
    names = Names([10, 1, 21, 100])
    assert names.find("1", np.array([9, 1, 8, 7])) == [1, 0, 3, 2]


def test_signs_alone_are_looked_for_as_they_are():
    names = Names(["a/b", "ab", "??"])
    assert names.find("/", np.ones(3)) == [0]
    assert names.find("??", np.ones(3)) == [2]
