"""A fit to be killed: `python -m tests.store.victim FOLDER SWEEPS [slow]`. It says when it has begun to sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from doublefeature.config import Schedule
from doublefeature.inference.fit import fit_into, stop_on_signals
from doublefeature.posterior.disk import Disk
from doublefeature.posterior.store import ModelFolder
from tests.store.cases import parts


class SlowDisk(Disk):
    """Takes its time over every write, flush and rename, so that most kills hit a checkpoint."""

    def write(self, handle: int, data: memoryview) -> int:
        time.sleep(0.005)
        return super().write(handle, data[: max(1, len(data) // 2)])

    def sync(self, handle: int) -> None:
        time.sleep(0.005)
        super().sync(handle)

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        time.sleep(0.005)


def victim_model(sweeps: int):
    """A model with so many sweeps."""
    return parts(schedule=Schedule(sweeps=sweeps, warmup=2, thin=1, chains=2, threads=2))


def main() -> None:
    """Create or go on with a folder until killed or finished."""
    path, sweeps = Path(sys.argv[1]), int(sys.argv[2])
    disk = SlowDisk() if sys.argv[3:] == ["slow"] else Disk()
    if (path / "manifest.json").exists():
        folder = ModelFolder.open(path, disk=disk)
    else:
        folder = ModelFolder.create(path, disk=disk, **victim_model(sweeps))
    said = []

    def say(news):
        if not said:
            said.append(print("sweeping", flush=True))

    with stop_on_signals() as stop:
        fit_into(folder, progress=say, stop=stop, checkpoint_seconds=0.0)
    print("finished" if folder.finished else "stopped", flush=True)


def strike(path: Path, sweeps: int, seconds: float, slow: bool, number: int = signal.SIGKILL) -> tuple[str, float]:
    """Start a victim and send it a signal so many seconds after its first sweep.

    Returns the last it said, and how many seconds after the signal it was gone.
    """
    command = [sys.executable, "-m", "tests.store.victim", str(path), str(sweeps), *(["slow"] if slow else [])]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(number)
        begin = time.monotonic()
        said += process.stdout.read()
        process.wait()
        seconds = time.monotonic() - begin
    return said.split()[-1], seconds


def leftovers(path: Path) -> bool:
    """Whether files lie about that the manifest does not list: the kill hit a checkpoint."""
    listed = (path / "manifest.json").read_text()
    files = [file.relative_to(path).as_posix() for file in path.rglob("chain-*/*")]
    return any(f'"{name}"' not in listed for name in files) or any(path.rglob("*.partial"))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
