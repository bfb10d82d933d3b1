"""The command line as a test calls it: in this process, with what it printed and how it ended."""

import json
import sys

from doublefeature.cli import main


class Done:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


def call(monkeypatch, capsys, *words: object) -> Done:
    """Run a command; a traceback is never an answer."""
    monkeypatch.setattr(sys, "argv", ["doublefeature", *map(str, words)])
    capsys.readouterr()
    try:
        main()
        code = 0
    except SystemExit as leave:
        code = int(leave.code or 0)
    caught = capsys.readouterr()
    assert "Traceback" not in caught.err
    return Done(code, caught.out, caught.err)
