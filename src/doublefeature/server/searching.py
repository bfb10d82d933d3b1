"""Finding items and users by what people type: words in any order, without accents, dots or capitals."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


class Names:
    """Ids, and titles if there are any, made ready to be searched."""

    def __init__(self, ids: Sequence[Hashable], titles: Sequence[str] | None = None) -> None:
        self._ids = [str(one).casefold() for one in ids]
        self._titles = [plain(title) for title in titles or [""] * len(self._ids)]
        self._whole = [
            f" {title} {closed(raw)} {own}"
            for title, raw, own in zip(self._titles, titles or self._titles, self._ids, strict=True)
        ]

    def find(self, search: str, counts: NDArray[np.integer]) -> list[int]:
        """Return the places of what holds every word at the beginning of one of its words.

        An id that is the text itself comes first, then titles and ids that begin with it, then the rest, each by
        count.
        """
        wanted, words = search.strip().casefold(), plain(search).split()
        if not wanted:
            found = list(range(len(self._ids)))
        else:
            found = [place for place, text in enumerate(self._whole) if _holds(text, words, wanted)]

        def order(place: int) -> tuple[bool, bool, int, int]:
            begins = self._titles[place].startswith(" ".join(words)) or self._ids[place].startswith(wanted)
            return self._ids[place] != wanted, not begins, -int(counts[place]), place

        return sorted(found, key=order)


def plain(text: str) -> str:
    """Return the words of a text: no accents, no capitals, one space for whatever is neither letter nor digit."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(mark if mark.isalnum() else " " for mark in apart if not unicodedata.combining(mark))
    return " ".join(letters.split())


def closed(text: str) -> str:
    """Return the words of a text with dots and dashes dropped in place of parted: L.A. is la."""
    return plain("".join(mark for mark in text if mark.isalnum() or mark.isspace()))


def _holds(text: str, words: Sequence[str], wanted: str) -> bool:
    return wanted in text or (bool(words) and all(f" {word}" in text for word in words))
