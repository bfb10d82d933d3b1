"""Declared levels: the ordered values a rating can take, and how they are written.

Levels are declared by the user (`parse_levels`, `check_levels`) or inferred from a sample (`infer_levels`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import RatingsError, SettingsError, show

Level = int | float | str

MAX_LEVELS = 255
USUAL_SCALES = ("1..5", "0..1", "0.5..5:0.5", "1..10", "0..10")
_TELLING = 200
"""Ratings from which a level that nobody gave is taken not to exist."""
_DECIMALS = 6
_MOST_UNEVEN = 20
"""Levels that are not in equal steps can be so many at most; more are measurements, not levels."""


class Levels(tuple[Level, ...]):
    """Checked levels, from lowest to highest. Wherever levels are asked for, these are taken as they are."""

    __slots__ = ()


def parse_levels(text: str) -> Levels:
    """Read declared levels: ``"1..5"``, ``"0.5..5:0.5"``, ``"low<mid<high"`` or ``"1,2,3"``.

    Numbers must increase, except between ``<``, where the order is the one written: ``"3<2<1"`` are grades of
    which 1 is the best.
    """
    if ".." not in text:
        ordered = "<" in text
        labels = [part.strip() for part in text.split("<" if ordered else ",")]
        return _check_labels(labels, must_increase=not ordered)
    ends, _, step_text = text.partition(":")
    try:
        low, high = (Decimal(end.strip()) for end in ends.split(".."))
        step = Decimal(step_text.strip() or 1)
        steps = (high - low) / step
        usable = step > 0 and 1 <= steps < MAX_LEVELS and steps == steps.to_integral_value()
    except (ValueError, ArithmeticError):
        raise RatingsError(f"levels {show(text)} cannot be read. Write 1..5, 0.5..5:0.5 or low<high.") from None
    if not usable:
        raise RatingsError(f"levels {show(text)} must climb in equal steps, {MAX_LEVELS} levels at most.")
    return check_levels([float(low + k * step) for k in range(int(steps) + 1)])


def check_levels(levels: str | Iterable[object]) -> Levels:
    """Check levels given from lowest to highest: all numbers, which must increase, or all text."""
    if isinstance(levels, Levels):
        return levels
    if isinstance(levels, str):
        return parse_levels(levels)
    labels = [label.item() if isinstance(label, np.generic) else label for label in levels]
    return _check_labels(labels, must_increase=True)


def _check_labels(labels: Sequence[object], *, must_increase: bool) -> Levels:
    if not 2 <= len(labels) <= MAX_LEVELS:
        raise RatingsError(f"{len(labels)} level(s) given, 2 to {MAX_LEVELS} are possible. Try '1..5'.")
    numbers = [number(label) for label in labels]
    if all(map(math.isfinite, numbers)):
        if must_increase and not _increase(numbers):
            remedy = "Write '3<2<1' to declare another order"
            raise RatingsError(f"levels {show(labels)} must increase and not repeat. {remedy}.")
        if len(set(numbers)) < len(numbers):
            raise RatingsError(f"levels {show(labels)} must not repeat.")
        return Levels(map(int, numbers)) if all(map(float.is_integer, numbers)) else Levels(numbers)
    texts = [label.strip() for label in labels if isinstance(label, str) and label.strip()]
    if len(texts) < len(labels):
        raise RatingsError(f"levels {show(labels)} must be all numbers or all text.")
    if len(set(texts)) < len(texts):
        raise RatingsError(f"levels {show(labels)} must not repeat.")
    return Levels(texts)


def infer_levels(labels: Sequence[Hashable], n_ratings: int, source: str) -> Levels:
    """Read the levels off the labels that occur, all of them numbers.

    Few ratings need not show every level, so the first of `USUAL_SCALES` that holds them all is taken. Many ratings
    show the scale themselves, from the lowest to the highest in equal steps; of a usual scale only the lowest level may
    be missing, which nobody may have been harsh enough to give.
    """
    seen = _distinct_numbers(labels)
    usual = [scale for scale in map(parse_levels, USUAL_SCALES) if (level_positions(seen, scale) >= 0).all()]
    if usual and (n_ratings < _TELLING or len(seen) == 1):
        return usual[0]
    even = _in_equal_steps(seen)
    for scale in usual:
        if scale[-1] == seen[-1] and seen[0] in scale[:2] and len(scale) <= len(even) + 1:
            return scale
    if even:
        return check_levels(even)
    if not 2 <= len(seen) <= _MOST_UNEVEN:
        what = f"{len(seen)} distinct rating(s) from {seen[0]:g} to {seen[-1]:g}"
        remedy = f"Round them, or pass levels that hold them all, {MAX_LEVELS} at most, such as '0..100'"
        raise RatingsError(f"{source}: {what} fit no usual scale. {remedy}.")
    return check_levels(seen)


def _distinct_numbers(labels: Sequence[Hashable]) -> list[float]:
    """Return the distinct numbers in order, without the rounding errors of short floats."""
    found: list[float] = np.unique(np.round([number(label) for label in labels], _DECIMALS)).tolist()
    return found


def _in_equal_steps(numbers: Sequence[float]) -> list[float]:
    """Return the levels in equal steps that hold all numbers, none if most of them or too many would be new."""
    whole = [int(Decimal(str(value)).scaleb(_DECIMALS)) for value in numbers]
    step = math.gcd(*(high - low for low, high in pairwise(whole))) or 1
    count = (whole[-1] - whole[0]) // step + 1
    if not 2 <= count <= min(2 * len(numbers), MAX_LEVELS):
        return []
    return [float(Decimal(whole[0] + k * step).scaleb(-_DECIMALS)) for k in range(count)]


def format_levels(levels: Sequence[Level]) -> str:
    """Write levels in the notation that `parse_levels` reads."""
    if isinstance(levels[0], str):
        return "<".join(map(str, levels))
    texts = [str(level).removesuffix(".0") for level in levels]
    if not _increase([number(level) for level in levels]):
        return "<".join(texts)
    gaps = {Decimal(high) - Decimal(low) for low, high in pairwise(texts)}
    if len(gaps) > 1:
        return ",".join(texts)
    step = gaps.pop()
    return f"{texts[0]}..{texts[-1]}" + ("" if step == 1 else f":{step}")


def level_positions(labels: Sequence[Hashable], levels: Sequence[Level]) -> NDArray[np.int64]:
    """Position of each label among the levels, -1 where it is none of them."""
    if isinstance(levels[0], str):
        index = {level: k for k, level in enumerate(levels)}
        return np.array([index.get(str(label).strip(), -1) for label in labels], np.int64)
    known, given = np.array(levels, float), np.array([number(label) for label in labels])
    tolerance = 1e-6 * max(1.0, float(np.abs(known).max()))
    ascending = np.argsort(known)
    places = np.searchsorted(known[ascending], given - tolerance).clip(max=known.size - 1)
    nearest = ascending[places]
    return np.where(np.abs(known[nearest] - given) <= tolerance, nearest, -1)


def level_position(level: Hashable, levels: Sequence[Level]) -> int:
    """Position of one label among the levels, the text of a number included; others are refused."""
    position = int(level_positions([level], levels)[0])
    if position < 0:
        raise SettingsError(f"{show(level)} is none of the levels {format_levels(levels)}.")
    return position


def number(label: object) -> float:
    """Return the label as a number, NaN when it is none."""
    try:
        return math.nan if isinstance(label, str) and "_" in label else float(label)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _increase(numbers: Sequence[float]) -> bool:
    return all(low < high for low, high in pairwise(numbers))
