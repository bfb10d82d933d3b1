"""Checks of single settings: each raises `SettingsError` with one line that names the setting."""

from __future__ import annotations

import math

from doublefeature.errors import SettingsError

_LEAST, _MOST = 1e-100, 1e100


def check_seed(seed: object) -> int:
    """Return the seed, or raise unless it is an integer from 0 to 2^63 − 1."""
    check_count("seed", seed, least=0)
    value: int = seed.__index__()  # type: ignore[attr-defined]
    if value >= 2**63:
        raise SettingsError(f"seed must be below 2^63, got {value}.")
    return value


def check_count(name: str, value: object, least: int) -> None:
    """Raise unless the value is an integer of at least `least` (True and False are not integers here)."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole:
        raise SettingsError(f"{name} must be an integer, got {value!r}.")
    if value.__index__() < least:  # type: ignore[attr-defined]
        raise SettingsError(f"{name} must be at least {least}, got {value!r}.")


def check_flag(name: str, value: object) -> None:
    """Raise unless the value is True or False."""
    if not isinstance(value, bool):
        raise SettingsError(f"{name} must be True or False, got {value!r}.")


def check_number(name: str, value: object) -> None:
    """Raise unless the value is a finite number (True and False are not)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SettingsError(f"{name} must be a finite number, got {value!r}.")


def check_positive(name: str, value: object) -> None:
    """Raise unless the value is a number above 0 whose square can be worked with."""
    check_number(name, value)
    if value <= 0:  # type: ignore[operator]
        raise SettingsError(f"{name} must be above 0, got {value!r}.")
    if not _LEAST <= value <= _MOST:  # type: ignore[operator]
        raise SettingsError(f"{name} must lie between {_LEAST:g} and {_MOST:g}, got {value!r}.")
