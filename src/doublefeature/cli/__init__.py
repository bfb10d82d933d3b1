"""The command line: every command parses, calls one library function and prints.

Data go to stdout, messages and progress to stderr. Exit codes: 0 ok, 2 wrong usage or bad input, 3 environment,
1 a bug, 130 interrupted after a checkpoint.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Run the command line; a Ctrl-C while its code is still being read ends it in one line too."""
    first = threading.current_thread() is threading.main_thread()
    mine = first and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if mine:
        signal.signal(signal.SIGINT, _leave)
    from doublefeature.cli.leaving import run

    if mine:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"doublefeature: interrupted\n")
    os._exit(130)
