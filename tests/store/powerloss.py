"""A power cut at any moment: what the disk may hold when only what was flushed is sure to be there.

A file's content is sure once the file was flushed, a name (new, renamed, removed) once its directory was. What came
later may be there or not, each piece on its own; content that was not flushed may be empty, cut off or zeros.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from tests.store.cases import WatchedDisk


class Note(NamedTuple):
    """One operation; `mark` notes that so many checkpoints are complete."""

    name: str
    path: str = ""
    target: str = ""
    data: bytes = b""
    mark: int = 0


class RecordingDisk(WatchedDisk):
    """Writes as usual and notes every operation, with paths relative to a root."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.notes: list[Note] = []
        self._root = root
        self._open: dict[int, str] = {}

    def create(self, path: Path) -> int:
        handle = super().create(path)
        self._open[handle] = self._name(path)
        self.notes.append(Note("create", self._name(path)))
        return handle

    def before(self, number: int, name: str, arguments: tuple) -> None:
        if name == "create":
            return
        if name in ("write", "sync", "close"):
            data = bytes(arguments[1]) if name == "write" else b""
            self.notes.append(Note(name, self._open[arguments[0]], data=data))
            return
        paths = [self._name(path) for path in arguments]
        self.notes.append(Note(name, *paths))

    def _name(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


class Content:
    """The content of one file: what was flushed, and what was written."""

    def __init__(self) -> None:
        self.sure = b""
        self.written = b""

    def after_the_cut(self, rng: random.Random) -> bytes:
        if self.sure == self.written:
            return self.sure
        cut = rng.randrange(len(self.written) + 1)
        return rng.choice([self.sure, self.written, self.written[:cut], bytes(len(self.written))])


class Names:
    """The names of one directory: what was flushed, and what has changed since."""

    def __init__(self) -> None:
        self.sure: dict[str, Content | Names] = {}
        self.now: dict[str, Content | Names] = {}
        self.pending: list[tuple[str, Content | Names | None]] = []

    def change(self, name: str, value: Content | Names | None) -> None:
        self.pending.append((name, value))
        if value is None:
            self.now.pop(name, None)
        else:
            self.now[name] = value

    def flush(self) -> None:
        self.sure, self.pending = dict(self.now), []

    def after_the_cut(self, rng: random.Random, share: float) -> dict[str, Content | Names]:
        found = dict(self.sure)
        for name, value in self.pending:
            if rng.random() < share:
                found.pop(name, None) if value is None else found.update({name: value})
        return found


def replay(notes: list[Note]) -> tuple[Names, int]:
    """Return the root directory after these operations, and how many checkpoints were complete."""
    root = Names()
    done = 0
    for note in notes:
        folder, name = _find(root, note.path)
        if note.name == "mark":
            done = note.mark
        elif note.name == "make_directory":
            folder.change(name, Names())
        elif note.name == "create":
            folder.change(name, Content())
        elif note.name == "write":
            folder.now[name].written += note.data
        elif note.name == "sync":
            folder.now[name].sure = folder.now[name].written
        elif note.name == "replace":
            target, new_name = _find(root, note.target)
            target.change(new_name, folder.now[name])
            folder.change(name, None)
        elif note.name == "remove":
            folder.change(name, None)
        elif note.name == "sync_directory":
            (root if note.path == "." else folder.now[name]).flush()
    return root, done


def _find(root: Names, path: str) -> tuple[Names, str]:
    *folders, name = path.split("/")
    for folder in folders:
        root = root.now[folder]
    return root, name


def materialise(names: Names, path: Path, rng: random.Random, share: float) -> None:
    """Write what the disk may hold after the cut; `share` of the unsure names have made it."""
    path.mkdir()
    for name, value in names.after_the_cut(rng, share).items():
        if isinstance(value, Names):
            materialise(value, path / name, rng, share)
        else:
            (path / name).write_bytes(value.after_the_cut(rng))
