"""Why a pair has the score it has: offsets and shared features, each with its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from doublefeature.errors import SettingsError, show
from doublefeature.levels import Level
from doublefeature.model.state import members
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.predict import Codes, FloatArray, n_levels_of, predict_levels
from doublefeature.posterior.strangers import STRANGERS, item_rows, remainder, spread, user_rows

BoolArray = NDArray[np.bool_]
Aligner = Callable[[Draw], Codes | tuple[Codes, BoolArray]]
"""For each feature of a draw, its feature in the estimate (−1: none), and whether its users' complement is meant."""


class Allocation(Protocol):
    """A point estimate of the features."""

    @property
    def user_members(self) -> BoolArray:
        """The (users, K) memberships."""

    @property
    def item_members(self) -> BoolArray:
        """The (items, K) memberships."""


@dataclass(frozen=True)
class Part:
    """A quantity's mean over draws and the interval that holds `Explanation.mass` of them."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class FeaturePart:
    """What one feature of the estimate, or all others together, add to the score."""

    feature: int | None  # number in the estimate; None for all features that are not listed
    shared: float  # probability that user and item are both in it
    contribution: Part  # zero in draws where they are not
    effect: float | None  # mean contribution where they are; None if they never are
    in_estimate: bool  # whether the estimate has both in it


@dataclass(frozen=True, eq=False)
class Explanation:
    """A pair's score taken apart: base + item offset + user offset + features + remainder = score, in the means.

    `user`, `item` and `levels` are codes until the caller replaces them with its own names.
    """

    user: Hashable
    item: Hashable
    base: float
    item_offset: Part
    user_offset: Part
    remainder: Part | None  # what no feature says; None where the model has no remainder
    features: tuple[FeaturePart, ...]  # by size of the mean contribution, the rest at the end
    score: Part
    levels: tuple[Level, ...]
    proba: FloatArray  # (levels,)
    mass: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        levels = {str(level): chance for level, chance in zip(self.levels, self.proba.tolist(), strict=True)}
        return {
            "user": self.user,
            "item": self.item,
            "base": self.base,
            "item_offset": asdict(self.item_offset),
            "user_offset": asdict(self.user_offset),
            "remainder": None if self.remainder is None else asdict(self.remainder),
            "features": [asdict(part) for part in self.features],
            "score": asdict(self.score),
            "levels": levels,
            "mass": self.mass,
        }

    def lines(self, title: str = "") -> list[str]:
        """Return the explanation as lines of plain text, with the item's title if it has one."""
        item = f"{self.item}, {title}" if title else str(self.item)
        out = [f"user {self.user}, item {item} ({self.mass:.0%} intervals)"]
        out.append(_line("base", _signed(self.base)))
        out.append(_line("item offset", _text(self.item_offset)))
        if (self.user_offset.lower, self.user_offset.upper) != (0.0, 0.0):
            out.append(_line("user offset", _text(self.user_offset)))
        listed = any(part.feature is not None for part in self.features)
        for part in self.features:
            if part.feature is None:
                out.append(_line("other features" if listed else "features", _text(part.contribution)))
                continue
            effect = "" if part.effect is None else f", {_signed(part.effect)} where shared"
            told = f"{_text(part.contribution)}  shared with probability {part.shared:.0%}{effect}"
            out.append(_line(f"feature {part.feature}", told))
        if self.remainder is not None:
            out.append(_line("remainder", _text(self.remainder)))
        out.append(_line("score", _text(self.score)))
        chances = zip(self.levels, self.proba.tolist(), strict=True)
        out.append("levels: " + ", ".join(f"{level} {chance:.0%}" for level, chance in chances))
        return out


class _Terms(NamedTuple):
    item_offset: FloatArray  # (rows,)
    user_offset: FloatArray  # (rows,)
    shared: BoolArray  # (rows, features of the estimate + 1)
    contribution: FloatArray  # (rows, features of the estimate + 1)
    remainder: FloatArray  # (rows,)


def explain(
    posterior: Posterior,
    user: int,
    item: int,
    *,
    mass: float = 0.8,
    allocation: Allocation | None = None,
    align: Aligner | None = None,
) -> Explanation:
    """Take the score of a pair of codes (−1: unknown) apart.

    Features have no identity across draws. With an estimate and a way to align each draw with it, what user and item
    share in a draw is put down to the features of the estimate, and the rest to other features; without, to features
    as a whole. A draw's feature that matches by its complement is turned first: A → 1 − A, θ → −θ, ρ_i → ρ_i + θ for
    its items (graded: w_i in place of θ), which leaves every score as it is.
    """
    n_levels = n_levels_of(posterior)
    if not 0.0 < mass < 1.0:
        raise SettingsError(f"mass must lie between 0 and 1, got {show(mass)}.")
    if (allocation is None) != (align is None):
        raise SettingsError("an explanation by features needs both an allocation and its aligner.")
    copies = STRANGERS if min(user, item) < 0 else 1
    users, items = spread(np.array([user]), copies), spread(np.array([item]), copies)
    both = _members_in_estimate(allocation, user, item)
    parts = [_take_apart(draw, users, items, both.size, align) for draw in posterior]
    terms = _Terms(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    scores = posterior.base + terms.item_offset + terms.user_offset + terms.contribution.sum(axis=1) + terms.remainder
    return Explanation(
        user=user,
        item=item,
        base=posterior.base,
        item_offset=part_of(terms.item_offset, mass),
        user_offset=part_of(terms.user_offset, mass),
        remainder=part_of(terms.remainder, mass) if posterior.draws[0].rank else None,
        features=_feature_parts(terms, both, mass),
        score=part_of(scores, mass),
        levels=tuple(range(1, n_levels + 1)),
        proba=predict_levels(posterior, np.array([user]), np.array([item]))[0],
        mass=mass,
    )


def general_offset(posterior: Posterior, item: int, *, mass: float = 0.8, align: Aligner | None = None) -> Part:
    """Return what an item adds for everybody, as explanations say it: with the parts that aligned complements lift."""
    nobody = np.array([0])  # whichever user: the item's own part is the same for all
    offsets = [_take_apart(draw, nobody, np.array([item]), 0, align).item_offset for draw in posterior]
    return part_of(np.concatenate(offsets), mass)


def _members_in_estimate(allocation: Allocation | None, user: int, item: int) -> BoolArray:
    """Return which features of the estimate hold both; one that is unknown is in none."""
    if allocation is None:
        return np.zeros(0, bool)
    if min(user, item) < 0:
        return np.zeros(allocation.user_members.shape[1], bool)
    both: BoolArray = allocation.user_members[user] & allocation.item_members[item]
    return both


def _take_apart(draw: Draw, users: Codes, items: Codes, n_listed: int, align: Aligner | None) -> _Terms:
    """Return the terms of the scores in one draw, features put down to those of the estimate, the rest last."""
    slots = np.arange(draw.n_features)
    of_users, rows = user_rows(draw, users), item_rows(draw, items)
    user_in, item_in, item_offset = members(of_users.words, slots), members(rows.words, slots), rows.offset
    effects = rows.effects(draw)
    contributions = of_users.grades(draw) * effects
    target = np.full(draw.n_features, n_listed)
    if align is not None:
        found = align(draw)
        index, complement = found if isinstance(found, tuple) else (found, np.zeros(found.size, bool))
        matched = index >= 0
        target[matched] = index[matched]
        turned = matched & complement
        lifted = np.where(turned, effects, 0.0)
        item_offset = item_offset + lifted.sum(axis=1)
        user_in, contributions = user_in ^ turned, contributions - lifted
    inside = user_in & item_in
    to_target = target[:, None] == np.arange(n_listed + 1)
    rest = remainder(draw, users, items)
    return _Terms(item_offset, of_users.offset, inside @ to_target, contributions @ to_target, rest)


def _feature_parts(terms: _Terms, both: BoolArray, mass: float) -> tuple[FeaturePart, ...]:
    """Return the features that the pair shares in some draw, then all others together.

    A feature never shared can still add something: turned round, a user whose grade is not 1 keeps (s − 1) w.
    """
    rest = both.size
    order = np.argsort(-np.abs(terms.contribution[:, :rest].mean(axis=0)), kind="stable").tolist()
    listed = [k for k in order if terms.shared[:, k].any()]
    unlisted = [k for k in range(rest) if k not in listed]
    contributions = terms.contribution.copy()
    contributions[:, rest] += contributions[:, unlisted].sum(axis=1)
    parts = []
    for k in [*listed, rest]:
        shared, contribution = terms.shared[:, k], contributions[:, k]
        parts.append(
            FeaturePart(
                feature=k if k < rest else None,
                shared=float(shared.mean()),
                contribution=part_of(contribution, mass),
                effect=float(contribution[shared].mean()) if shared.any() else None,
                in_estimate=bool(k < rest and both[k]),
            )
        )
    return tuple(parts)


def part_of(values: FloatArray, mass: float) -> Part:
    """Return the mean of a quantity over draws and the interval that holds this share of them."""
    tail = (1.0 - mass) / 2.0
    lower, upper = np.quantile(values, [tail, 1.0 - tail])
    return Part(float(values.mean()), float(lower), float(upper))


def _line(name: str, text: str) -> str:
    return f"  {name:<16}{text}"


def _text(part: Part) -> str:
    return f"{_signed(part.mean)} ({_signed(part.lower)} to {_signed(part.upper)})"


def _signed(value: float) -> str:
    """Write a number with its sign; what rounds to zero has none of its own."""
    return f"{round(value, 2) + 0.0:+.2f}"
