"""A few threads for everything that computes or waits, with a queue that ends: more is refused, not delayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from doublefeature.server.problems import BusyError

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Runs functions in threads; compiled code there leaves the event loop free to refuse and to answer."""

    def __init__(self, name: str, threads: int, queue: int, seconds: float) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + queue
        self._seconds = seconds
        self.pending = 0
        self.refused = 0

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function returns, or raise `BusyError` at once when too much is waiting."""
        if self.pending >= self._most:
            self.refused += 1
            raise BusyError("too many requests are being worked on. Try again in a moment.")
        self.pending += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        work = self._threads.submit(function, *args, **kwargs)
        work.add_done_callback(lambda done: self._hand_over(loop, done, answer))
        try:
            async with asyncio.timeout(self._seconds):
                return await answer
        except TimeoutError:
            work.cancel()
            raise BusyError(f"the answer took longer than {self._seconds:g} seconds. Ask for less.") from None

    def close(self) -> None:
        """Finish what has begun and drop what waits."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _hand_over(self, loop: asyncio.AbstractEventLoop, done: Future[T], answer: asyncio.Future[T]) -> None:
        """Wake the event loop once: it counts down and gives the answer to whoever still waits."""
        try:
            loop.call_soon_threadsafe(self._finish, done, answer)
        except RuntimeError:  # the loop has been closed: nobody waits any more
            self.pending -= 1

    def _finish(self, done: Future[T], answer: asyncio.Future[T]) -> None:
        self.pending -= 1
        if done.cancelled():
            answer.cancel()
        elif not answer.done():  # nobody waits any more after a timeout or a broken connection
            problem = done.exception()
            if problem is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(problem)
