"""A team of threads of this process: what teams do, without Dask."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from doublefeature.inference.teams import Desk, LostWorker


class RoomLink:
    """A link between threads that meet at a barrier."""

    def __init__(self, rank: int, room: list[list[bytes]], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(room)
        self._room, self._barrier = room, barrier

    def exchange(self, mine: bytes) -> list[bytes]:
        return self.trade([mine] * self.size)

    def trade(self, pieces: Sequence[bytes]) -> list[bytes]:
        try:
            self._room[self.rank] = list(pieces)
            self._barrier.wait(60)
            found = [theirs[self.rank] for theirs in self._room]
            self._barrier.wait(60)
        except threading.BrokenBarrierError:
            raise LostWorker("a worker is gone") from None
        return found

    def close(self) -> None:
        self._barrier.abort()


class ThreadTeam:
    """Runs functions in threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.regroup()

    def regroup(self) -> None:
        room: list[list[bytes]] = [[] for _ in range(self.size)]
        barrier = threading.Barrier(self.size)
        self.desks = [Desk(RoomLink(rank, room, barrier)) for rank in range(self.size)]

    def together(self, function, arguments, *, stop=None, news=None):
        def run(desk, own):
            try:
                return function(desk, *own)
            except BaseException:
                desk.link.close()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(run, desk, own) for desk, own in zip(self.desks, arguments, strict=True)]
        problems = [future.exception() for future in futures if future.exception()]
        for problem in sorted(problems, key=lambda found: isinstance(found, LostWorker)):
            raise problem
        return [future.result() for future in futures]

    def ask(self, rank, function, *arguments):
        return function(self.desks[rank], *arguments)

    def close(self) -> None:
        pass
