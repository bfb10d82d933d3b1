"""Which items come first: for one user, between two items, and over all users."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import leaf
from doublefeature.checks import check_count, check_seed
from doublefeature.errors import SettingsError, show
from doublefeature.model.state import NOISE
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.predict import (
    Codes,
    FloatArray,
    add_level_probabilities,
    levels_in_draw,
    n_levels_of,
    predict_levels,
)
from doublefeature.posterior.prediction import Positions, at_least, level_quantile, level_sd, shortest_interval
from doublefeature.posterior.strangers import STRANGERS, spread

RankBy = Literal["mean", "lower", "at_least", "thompson"]
TopBy = Literal["rating", "offset"]
CodeCollection = Collection[int] | NDArray[np.integer]

INTERVAL_MASS = 0.8
_BLOCK = 1 << 20
_TAIL = 8.0  # noise scales beyond the outer cutpoints at which the outer levels are certain


@dataclass(frozen=True, eq=False)
class Recommendations:
    """Items for one user, best first, with what is predicted for each."""

    items: Codes
    mean: FloatArray
    sd: FloatArray
    lower: Positions  # level positions: ends of the shortest run that holds the mass
    upper: Positions
    at_least: FloatArray  # probability of `level` or more
    proba: FloatArray  # (items, levels)
    level: int  # position of the level that `at_least` speaks of
    rank_by: RankBy

    def __len__(self) -> int:
        return int(self.items.size)


@dataclass(frozen=True)
class Preference:
    """How one user would rate item A beside item B."""

    above: float  # probability that A is rated above B
    level: float
    below: float
    difference: float  # mean of rating A − rating B


@dataclass(frozen=True, eq=False)
class TopItems:
    """Items in order of a posterior mean, with the interval of that quantity over draws."""

    items: Codes
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    by: TopBy

    def __len__(self) -> int:
        return int(self.items.size)


def recommend(
    posterior: Posterior,
    user: int,
    *,
    seen: CodeCollection,
    values: FloatArray,
    n: int = 10,
    rank_by: RankBy = "mean",
    level: int | None = None,
    quantile: float = 0.1,
    mass: float = INTERVAL_MASS,
    allow: CodeCollection | None = None,
    deny: CodeCollection | None = None,
    seed: int = 0,
    table: FloatArray | None = None,
) -> Recommendations:
    """Return the n best items that a user (−1: unknown) has not seen; fewer only when fewer are left.

    Parameters
    ----------
    seen, allow, deny
        Item codes: never shown, the only ones shown, never shown either.
    values
        What each level counts as in a mean, see `level_values`.
    rank_by
        "mean": mean rating; "lower": the rating exceeded with probability 1 − `quantile`; "at_least": probability of
        `level` or more; "thompson": mean rating in one draw picked by `seed`, so that what might be the best is tried
        now and then. Equals go by mean, then by code.
    level
        Position of a level. None: three quarters up the scale, such as 4 among 1..5.
    mass
        What the intervals hold at least.
    table
        The user's level probabilities of all items, (items, levels), where they are known already.
    """
    check_count("n", n, least=1)
    position = _level_position(level, n_levels_of(posterior))
    items = _candidates(posterior, seen, allow, deny)
    proba = predict_levels(posterior, np.full(items.size, user), items) if table is None else table[items]
    keys = [proba @ rising(values)]
    if rank_by == "lower":
        keys.append(level_quantile(proba, quantile).astype(np.float64))
    elif rank_by == "at_least":
        keys.append(at_least(proba, position))
    elif rank_by == "thompson":
        keys.append(_levels_in_one_draw(posterior, user, items, seed) @ rising(values))
    elif rank_by != "mean":
        raise SettingsError(f"rank_by must be 'mean', 'lower', 'at_least' or 'thompson', got {show(rank_by)}.")
    best = np.lexsort([-key for key in keys])[:n]
    chosen = proba[best]
    lower, upper = shortest_interval(chosen, mass)
    return Recommendations(
        items=items[best],
        mean=chosen @ values,
        sd=level_sd(chosen, values),
        lower=lower,
        upper=upper,
        at_least=at_least(chosen, position),
        proba=chosen,
        level=position,
        rank_by=rank_by,
    )


def prefer(posterior: Posterior, user: int, item_a: int, item_b: int, values: FloatArray) -> Preference:
    r"""Return the probabilities that a user rates item A above, level with and below item B.

    Given a draw $\omega$ the two ratings are independent, over draws they are not:
    $P(A > B) = E_\omega \sum_r P(r_A = r \mid \omega) P(r_B < r \mid \omega)$. Unknown items (−1) are two different
    ones; a known item is level with itself.
    """
    n_levels_of(posterior)
    if item_a == item_b >= 0:
        return Preference(0.0, 1.0, 0.0, 0.0)
    copies = STRANGERS if min(user, item_a, item_b) < 0 else 1
    users, first = spread(np.array([user]), copies), spread(np.array([item_a]), copies)
    second = spread(np.array([item_b]), copies, group=1 if item_a < 0 else 0)
    above = below = difference = 0.0
    for draw in posterior:
        one = levels_in_draw(draw, posterior.base, users, first, posterior.scales)
        two = levels_in_draw(draw, posterior.base, users, second, posterior.scales)
        above += _chance_above(one, two)
        below += _chance_above(two, one)
        difference += float(((one - two) @ values).mean())
    if item_a < 0 and item_b < 0:
        above, below, difference = (above + below) / 2.0, (above + below) / 2.0, 0.0
    above, below, difference = (total / len(posterior) for total in (above, below, difference))
    return Preference(above, max(1.0 - above - below, 0.0), below, difference)


def top(posterior: Posterior, n: int, values: FloatArray, by: TopBy = "rating") -> TopItems:
    """Return the n leading items with the interval of what they are ordered by over draws.

    Parameters
    ----------
    by
        "rating": q_i = (1/m) Σ_u E[r_ui | draw], the mean rating if all m users rated the item. "offset": the item
        offset ρ_i, which speaks only of users who share no feature with the item.
    """
    n_levels_of(posterior)
    if by == "rating":
        return ranked(mean_ratings(posterior, values), n, by, rising=bool(values[-1] >= values[0]))
    if by == "offset":
        return ranked(np.stack([draw.item_offset for draw in posterior]), n, by)
    raise SettingsError(f"by must be 'rating' or 'offset', got {show(by)}.")


def mean_ratings(posterior: Posterior, values: FloatArray) -> FloatArray:
    """Return every item's mean rating over all users in every draw, (draws, items)."""
    return np.stack([_mean_ratings(draw, posterior, values) for draw in posterior])


def ranked(table: FloatArray, n: int, by: TopBy, *, rising: bool = True) -> TopItems:
    """Return the n items with the largest means of a (draws, items) table, or the smallest if not rising."""
    check_count("n", n, least=1)
    mean = table.mean(axis=0)
    best = np.argsort(-mean if rising else mean, kind="stable")[:n]
    tail = (1.0 - INTERVAL_MASS) / 2.0
    lower, upper = np.quantile(table[:, best], [tail, 1.0 - tail], axis=0)
    return TopItems(items=best, mean=mean[best], lower=lower, upper=upper, by=by)


def rising(values: FloatArray) -> FloatArray:
    """Return values that rise with the level: grades of which 1 is the best change sign."""
    return values if values[-1] >= values[0] else -values


def _levels_in_one_draw(posterior: Posterior, user: int, items: Codes, seed: int) -> FloatArray:
    """Return level probabilities in one draw, of one stranger if the user is unknown, both picked by the seed."""
    rng = np.random.default_rng(check_seed(seed))
    draw = posterior.draws[int(rng.integers(len(posterior)))]
    who = user if user >= 0 else -1 - int(rng.integers(STRANGERS))
    return levels_in_draw(draw, posterior.base, np.full(items.size, who), items, posterior.scales)


def _chance_above(one: FloatArray, two: FloatArray) -> float:
    lower = two.cumsum(axis=1) - two
    return float((one * lower).sum(axis=1).mean())


def _mean_ratings(draw: Draw, posterior: Posterior, values: FloatArray) -> FloatArray:
    """Return every item's mean rating over all users in one draw, users with the same noise scale at a time."""
    out = np.zeros(draw.item_offset.size)
    for code in np.unique(draw.user_scale).tolist():
        users = np.flatnonzero(draw.user_scale == code)
        curve = _rating_by_score(draw, float(draw.hyper[NOISE] * posterior.scales[code]), values)
        out += users.size / draw.user_scale.size * _mean_ratings_of(users, draw, posterior.base, curve)
    return out


def _mean_ratings_of(users: Codes, draw: Draw, base: float, curve: tuple[float, float, FloatArray]) -> FloatArray:
    """Return every item's mean rating over users whose mean rating is this curve of the score."""
    by_user = draw.user_loads(users).T
    out = np.empty(draw.item_offset.size)
    rows = max(1, _BLOCK // users.size)
    for first in range(0, out.size, rows):
        part = slice(first, first + rows)
        scores = draw.item_loads(part) @ by_user
        scores += base + draw.item_offset[part, None] + draw.user_offset[users]
        fill_row_means(scores, *curve, out[part])
    return out


def _rating_by_score(draw: Draw, noise: float, values: FloatArray) -> tuple[float, float, FloatArray]:
    """Return the mean rating as a function of the score, tabulated from `start` in steps of 1/256 of the noise scale.

    Read off linearly it is wrong by less than 5e-7 of the values' range; beyond the ends it is constant.
    """
    start, end = draw.cutpoints[1] - _TAIL * noise, draw.cutpoints[-2] + _TAIL * noise
    scores = np.linspace(start, end, 1 + int(np.ceil(256.0 * (end - start) / noise)))
    proba = np.zeros((scores.size, values.size))
    add_level_probabilities(scores, noise, draw.cutpoints, 1, proba)
    return float(start), float(scores[1] - scores[0]), proba @ values


@leaf
def fill_row_means(scores: FloatArray, start: float, step: float, heights: FloatArray, out: FloatArray) -> None:
    """Fill in the mean over each row of scores of a function tabulated from `start` in equal steps."""
    last = heights.size - 1
    for row in range(scores.shape[0]):
        total = 0.0
        for j in range(scores.shape[1]):
            place = min(max((scores[row, j] - start) / step, 0.0), float(last))
            below = min(int(place), last - 1)
            total += heights[below] + (place - below) * (heights[below + 1] - heights[below])
        out[row] = total / scores.shape[1]


def _candidates(
    posterior: Posterior, seen: CodeCollection, allow: CodeCollection | None, deny: CodeCollection | None
) -> Codes:
    n_items = posterior.draws[0].item_offset.size
    keep = np.ones(n_items, bool)
    if allow is not None:
        keep[:] = False
        keep[_item_codes(allow, n_items)] = True
    keep[_item_codes(seen, n_items)] = False
    if deny is not None:
        keep[_item_codes(deny, n_items)] = False
    return np.flatnonzero(keep)


def _item_codes(codes: CodeCollection, n_items: int) -> Codes:
    found = np.fromiter(codes, np.int64, len(codes))
    if found.size and not (found.min() >= 0 and found.max() < n_items):
        raise SettingsError(f"item codes run from 0 to {n_items - 1}, got {found.min()} to {found.max()}.")
    return found


def high_position(n_levels: int) -> int:
    """Return the position of the level that counts as high: three quarters up the scale, such as 4 among 1..5."""
    return -(-3 * (n_levels - 1) // 4)


def _level_position(level: int | None, n_levels: int) -> int:
    if level is None:
        return high_position(n_levels)
    check_count("level", level, least=0)
    if level >= n_levels:
        raise SettingsError(f"level is a position from 0 to {n_levels - 1}, got {show(level)}.")
    return int(level)
