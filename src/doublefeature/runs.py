"""What must hold before a run begins, and what is taken where nothing was said."""

from __future__ import annotations

from dataclasses import replace

from doublefeature.config import Schedule
from doublefeature.errors import SettingsError, show
from doublefeature.levels import number

FEW_DRAWS = 5


def thin_for(sweeps: int, warmup: int, usual: int = 8) -> int:
    """Return how many sweeps lie between draws unless told: fewer than usual where a chain would keep under five."""
    return max(1, min(usual, (sweeps - warmup) // FEW_DRAWS))


def check_run(schedule: Schedule, holdout: float = 0.0, *, sweeps: int | None = None) -> None:
    """Raise before the first sweep if no draw would be kept, or if the share kept out is none.

    Parameters
    ----------
    sweeps
        Sweeps per chain in place of those of the schedule.
    """
    if sweeps is not None:
        schedule = replace(schedule, sweeps=sweeps)
    if not schedule.draws_per_chain:
        left = schedule.n_sweeps - schedule.warmup
        raise SettingsError(
            f"thin ({schedule.thin}) keeps no draw of the {left} sweeps after the warm-up. "
            f"Give a thin of at most {left}, or more sweeps."
        )
    if not 0 <= number(holdout) < 1:
        raise SettingsError(f"holdout is a share from 0 to below 1, got {show(holdout)}.")
