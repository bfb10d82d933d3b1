"""Small ratings and checks that several test files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from doublefeature.errors import RatingsError
from doublefeature.ratings import Ratings
from doublefeature.readers import read_ratings

ROWS = [("u1", "Alien", 5), ("u1", "Heat", 2), ("u2", "Alien", 4)]
CSV = "user,item,rating\nu1,Alien,5\nu1,Heat,2\nu2,Alien,4\n"
EXPECTED = Ratings.from_triples(*zip(*ROWS, strict=True)).fingerprint


def message(problem) -> str:
    """Text of a caught error, which must be one line."""
    text = str(problem.value)
    assert "\n" not in text
    return text


def refusal(path, **options) -> str:
    """Read what must be refused; the message is one line and names the source."""
    with pytest.raises(RatingsError) as problem:
        read_ratings(path, **options)
    text = str(problem.value)
    assert text.isprintable(), text
    assert len(text) < 500
    assert Path(path).name in text
    return text
