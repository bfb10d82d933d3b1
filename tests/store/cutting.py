"""Cut the power at every operation of a recorded run, in several ways, and look at what is left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

from doublefeature.errors import StoreError
from doublefeature.inference.fit import fit_into
from doublefeature.posterior.store import ModelFolder
from tests.store.crash import check_afterwards, check_whole_draws, short_model, short_run
from tests.store.powerloss import Note, RecordingDisk, materialise, replay

SHARES = (0.0, 1.0, 0.5)
"""Share of the names not flushed that are there all the same: none, all, some."""


class Outcome(NamedTuple):
    """How many power cuts were tried, how many folders opened, and how many were resumed to the end."""

    cuts: int
    opened: int
    resumed: int


def record_run(base: Path) -> list[Note]:
    """Return the operations of a short run with a mark after the creation and after every checkpoint."""
    disk = RecordingDisk(base)
    folder = ModelFolder.create(base / "recorded", disk=disk, **short_model())
    disk.notes.append(Note("mark", mark=1))
    append = folder.append

    def marked(*arguments) -> None:
        append(*arguments)
        disk.notes.append(Note("mark", mark=1 + sum(len(chain.segments) for chain in folder._manifest.chains)))

    folder.append = marked
    fit_into(folder, checkpoint_seconds=0.0)
    shutil.rmtree(base / "recorded")
    return disk.notes


def cut_power(
    base: Path, notes: list[Note], variants: int, stride: int = 1, resume_every: int = 10**9, seed: int = 1
) -> Outcome:
    """Cut the power after each prefix of the operations; the folder must open at the last checkpoint or the next."""
    rng = random.Random(seed)
    cuts = opened = resumed = 0
    for length in range(0, len(notes) + 1, stride):
        for variant in range(variants):
            cuts += 1
            root, done = replay(notes[:length])
            place = base / "disk"
            materialise(root, place, rng, SHARES[variant % 3])
            path = place / "recorded"
            found = _checkpoints(path)
            assert done <= found <= done + 1, f"{found} checkpoints after operation {length}, {done} were complete"
            if found:
                opened += 1
                check_whole_draws(path, short_run())
            if cuts % resume_every == 0:
                check_afterwards(path)
                resumed += 1
            shutil.rmtree(place)
    return Outcome(cuts, opened, resumed)


def _checkpoints(path: Path) -> int:
    """Return 0 for what is not a model yet, 1 for a model without draws, and one more for every segment."""
    try:
        folder = ModelFolder.open(path)
    except StoreError:
        assert not (path / "manifest.json").exists(), "the model is damaged"
        return 0
    return 1 + sum(len(chain.segments) for chain in folder._manifest.chains)
