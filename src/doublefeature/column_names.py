"""Names that columns of ratings, items and users go by, understood without being told."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PEOPLE = (
    *("user", "customer", "reader", "reviewer", "rater", "member", "person", "respondent", "participant"),
    *("student", "patient", "viewer", "listener"),
)
_THINGS = (
    *("item", "movie", "film", "book", "product", "anime", "joke", "song", "track", "artist", "business", "restaurant"),
    *("recipe", "game", "question", "exam", "course", "beer", "wine", "article"),
)
KNOWN_NAMES = {
    "user": (*(name + end for name in _PEOPLE for end in ("", "id")), "uid", "users", "username"),
    "item": (*(name + end for name in _THINGS for end in ("", "id")), "iid", "items", "isbn", "asin"),
    "rating": (
        *("rating", "ratings", "stars", "score", "value", "level", "mark", "marks", "grade", "points"),
        *("bookrating", "response", "answer", "overall"),
    ),
    "time": ("timestamp", "timestamps", "time", "datetime"),
    "title": ("title", "name", "label", "movietitle", "booktitle"),
}
"""By role, from the plainest name on; case, spaces, `_`, `-` and other marks do not count."""

_YEAR_AT_END = re.compile(r"\((\d{4})\)\s*$")


def plain(name: object) -> str:
    """Return a column's name as it is looked up: letters and digits only, in lower case."""
    return "".join(filter(str.isalnum, str(name))).lower()


def known_column(role: str, names: Sequence[object]) -> int | None:
    """Return the position of the column that goes by the plainest known name of a role, None if none does."""
    found = [plain(name) for name in names]
    return next((found.index(name) for name in KNOWN_NAMES[role] if name in found), None)


def year_at_end(title: str) -> str:
    """Return the year that a title ends in, as in `Alien (1979)`, empty if it ends in none."""
    found = _YEAR_AT_END.search(title)
    return found.group(1) if found else ""
