r"""How probable a new row's ratings are in a draw, nearly: what draws would be weighed by if they were.

For any state x of the row, p(ratings) = p(ratings, x) / p(x | ratings). Here x is the likeliest state found greedily.
Given its memberships and scale, p(x | ratings) of what is normal is Laplace's normal at the mode; of each membership it
is the chance that fold-in gives it with all else at x; of the scale, its conditional. Nothing is drawn, so the
differences between draws are not noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.inference.fold_kernel import Others, Rated, RowPrior, fill_slopes
from doublefeature.model.state import members
from doublefeature.posterior.draws import spread_effects

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_STEPS = 4


class _Normal(NamedTuple):
    """What is normal given the memberships: strengths, offset and factors, one column each."""

    design: FloatArray  # (ratings, columns)
    centre: FloatArray  # (columns,)
    firm: FloatArray  # (columns,) prior precision


def log_evidence(others: Others, prior: RowPrior, rated: Rated, inside: BoolArray) -> float:
    """Return the log probability of a row's ratings in a draw, given memberships that suit them."""
    parts = parts_of(others, rated, inside.size)
    normal = _normal(others, prior, rated, parts[:, inside], prior.centre[inside])
    fixed = rated.base + others.offset[rated.codes]
    if prior.sd == 0.0:
        fixed = fixed + parts[:, inside] @ prior.centre[inside]
    chosen, at = int(prior.scale_logs.argmax()), normal.centre
    for _ in range(2):
        at, spread = _mode(normal, at, fixed, rated, prior.scales[chosen])
        scores = fixed + normal.design @ at
        weights = prior.scale_logs + [_look(rated, scores, scale)[0].sum() for scale in prior.scales]
        chosen = int(weights.argmax())
    at, spread = _mode(normal, at, fixed, rated, prior.scales[chosen])
    scores = fixed + normal.design @ at
    weights = prior.scale_logs + [_look(rated, scores, scale)[0].sum() for scale in prior.scales]
    strength = np.where(inside, prior.centre, 0.0)
    if prior.sd > 0.0:
        strength[inside] = at[: int(inside.sum())]
    odds = _log_odds(rated, prior, (parts, scores, strength, inside), prior.scales[chosen])
    total = float(np.logaddexp.reduce(weights))
    total += float(0.5 * (np.log(normal.firm) - normal.firm * (at - normal.centre) ** 2).sum()) - spread
    signs = np.where(inside, 1.0, -1.0)
    with np.errstate(invalid="ignore"):
        gained = -np.logaddexp(0.0, -signs * prior.log_odds) + np.logaddexp(0.0, -signs * odds)
    return total + float(np.where(np.isneginf(prior.log_odds), 0.0, gained).sum())


def parts_of(others: Others, rated: Rated, n_features: int) -> FloatArray:
    """Return what each feature adds to each rating at strength 1, (ratings, K)."""
    words = others.words[rated.codes]
    if others.packed.size:
        return spread_effects(words, others.first[rated.codes], others.packed, n_features)
    parts: FloatArray = members(words, np.arange(n_features)) * others.plain
    return parts


def effective_number(log_weights: FloatArray) -> float:
    """Return how many equal weights have the same variance: (Σ w)² / Σ w²."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def _look(rated: Rated, scores: FloatArray, scale: float) -> FloatArray:
    """Return log probabilities of the ratings at scores (…, ratings), with first and second derivative: (3, …)."""
    flat = np.ascontiguousarray(scores).reshape(-1)
    repeats = flat.size // max(rated.levels.size, 1)
    out = np.empty((3, flat.size))
    levels, noise = np.tile(rated.levels, repeats), np.tile(scale * rated.noise, repeats)
    fill_slopes(levels, flat, noise, rated.cutpoints, out)
    return out.reshape(3, *scores.shape)


def _normal(others: Others, prior: RowPrior, rated: Rated, parts: FloatArray, centre: FloatArray) -> _Normal:
    columns, centres, firm = [], [], []
    if prior.sd > 0.0:
        columns += [parts]
        centres += [centre]
        firm += [np.full(centre.size, 1.0 / prior.sd**2)]
    if prior.offset_sd > 0.0:
        columns += [np.ones((rated.codes.size, 1))]
        centres += [np.array([prior.offset_mean])]
        firm += [np.array([1.0 / prior.offset_sd**2])]
    rank = others.factor.shape[1]
    if rank:
        columns += [others.factor[rated.codes]]
        centres += [np.zeros(rank)]
        firm += [np.full(rank, 1.0 / prior.factor_sd**2)]
    if not columns:
        return _Normal(np.zeros((rated.codes.size, 0)), np.zeros(0), np.zeros(0))
    return _Normal(np.hstack(columns), np.concatenate(centres), np.concatenate(firm))


def _mode(normal: _Normal, at: FloatArray, fixed: FloatArray, rated: Rated, scale: float) -> tuple[FloatArray, float]:
    """Return the mode by Newton's steps from `at`, and half the log determinant of the precision there."""
    precision = np.diag(normal.firm)
    for step in range(_STEPS + 1):
        _, slope, bend = _look(rated, fixed + normal.design @ at, scale)
        precision = np.diag(normal.firm) - (normal.design.T * bend) @ normal.design
        if step < _STEPS and at.size:
            pull = normal.design.T @ slope - normal.firm * (at - normal.centre)
            at = at + np.linalg.solve(precision, pull)
    return at, 0.5 * float(np.linalg.slogdet(precision)[1]) if at.size else 0.0


def _log_odds(
    rated: Rated, prior: RowPrior, row: tuple[FloatArray, FloatArray, FloatArray, BoolArray], scale: float
) -> FloatArray:
    """Return the log odds of each membership with all else as it is, its own strength integrated out."""
    parts, scores, strength, _ = row
    without = scores - (parts * strength).T
    value, slope, bend = _look(rated, without, scale)
    if prior.sd == 0.0:
        inside = _look(rated, without + (parts * prior.centre).T, scale)[0]
        odds: FloatArray = prior.log_odds + (inside - value).sum(axis=1)
        return odds
    firm = 1.0 / prior.sd**2
    precision = firm - (bend * parts.T**2).sum(axis=1)
    mean = (firm * prior.centre + (slope * parts.T).sum(axis=1)) / precision
    odds = prior.log_odds + 0.5 * np.log(firm / precision)
    odds += 0.5 * (precision * mean**2 - firm * prior.centre**2)
    return odds
