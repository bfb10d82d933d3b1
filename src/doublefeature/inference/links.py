"""How the workers that run one chain together talk to each other, and how their kernels do."""

from __future__ import annotations

import ctypes
from typing import Protocol

_SHARE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Link(Protocol):
    """One worker's way to the others. Every worker makes the same calls in the same order."""

    @property
    def rank(self) -> int:
        """Number of this worker: 0, …, size − 1."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def exchange(self, mine: bytes) -> list[bytes]:
        """Give bytes to everybody and return everybody's, in the order of ranks. Lengths may differ.

        Raises when another worker is gone; the link is then of no use any more.
        """


class Gate:
    """The door from kernels to a link: the address of a C function (see `doublefeature.kernels.link`).

    Nothing can be raised through a kernel. What goes wrong is kept for `check`, and from then on kernels share nothing:
    the sweep ends with numbers of no meaning, to be thrown away.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._problem: BaseException | None = None
        self._function = _SHARE(self._share)
        self.address = int(ctypes.cast(self._function, ctypes.c_void_p).value or 0)

    def check(self) -> None:
        """Raise what went wrong since the last look."""
        if self._problem is not None:
            raise self._problem

    def _share(self, rows: int, row_bytes: int, borders: int) -> None:
        if self._problem is not None:
            return
        try:
            starts = [row_bytes * border for border in (ctypes.c_int64 * (self._link.size + 1)).from_address(borders)]
            begin, end = starts[self._link.rank], starts[self._link.rank + 1]
            found = self._link.exchange(ctypes.string_at(rows + begin, end - begin))
            for rank, theirs in enumerate(found):
                if len(theirs) != starts[rank + 1] - starts[rank]:
                    raise RuntimeError(f"worker {rank} is at another place of the sweep")
                if rank != self._link.rank:
                    ctypes.memmove(rows + starts[rank], theirs, len(theirs))
        except BaseException as problem:
            self._problem = problem
