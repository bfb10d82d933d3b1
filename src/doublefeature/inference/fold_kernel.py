r"""One new row, a user or an item, against one draw: its memberships, strengths, offset, scale and factors.

Everything else in the draw stays as it is. With parts $x_{jk}$, what feature k adds to rating j at strength 1,

$$\eta_j = \text{rest}_j + \alpha + \sum_k A_k s_k x_{jk} + u \cdot v_j,$$

$A_k$ Bernoulli, $s_k \sim N(c_k, \sigma^2)$, $\alpha \sim N(\mu, \sigma_\alpha^2)$, $u \sim N(0, \sigma_r^2)$. A scan
renews each membership together with its strength (latent scores integrated out), the row's noise scale (likewise),
then, given fresh latent scores, all strengths, the offset and the factors jointly.

A membership and its strength are one choice between *out* and *in with strength s*, s proposed from the normal q that
expands the log likelihood around the score without the feature. In wins with probability w/(1 + w), where
$w = \text{odds} \cdot N(s; c, \sigma^2) / q(s) \cdot L(s)/L(\text{out})$. What q looks at does not change with the
choice, so the step back weighs the same w, and the choice keeps the conditional.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import inlined, kernel, leaf
from doublefeature.kernels.bits import ONE, ZERO, lowest_bit
from doublefeature.kernels.gaussian import draw_normal, factorise
from doublefeature.kernels.streams import Stream, new_stream, seek, shuffle, uniform
from doublefeature.kernels.variates import normal, normalise_logs, pick_by_logs, truncated_normal
from doublefeature.model.ordinal import level_log_probability, level_log_slopes

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]
Codes = NDArray[np.int64]

_REACH, _PER_UNIT = 8.0, 128
_GRID = np.arange(-_REACH, _REACH + 0.5 / _PER_UNIT, 1.0 / _PER_UNIT)
_BELOW = np.array([0.5 * math.erfc(-x * math.sqrt(0.5)) for x in _GRID])
_DENSITY = np.exp(-0.5 * _GRID**2) / math.sqrt(2.0 * math.pi)
_SURE = 1e-4
"""Least probability that differences of tabulated tails are good for: they are right to 1e-11."""


class Others(NamedTuple):
    """The other side of a draw: items when a user is folded in, users when an item is."""

    words: WordArray  # (rows, words)
    first: Codes  # (rows,) where a row's numbers begin in `packed`
    packed: FloatArray  # a number per membership; empty: `plain` holds for all rows
    plain: FloatArray  # (K,)
    offset: FloatArray  # (rows,)
    factor: FloatArray  # (rows, rank)


class RowPrior(NamedTuple):
    """What is known of the new row before its ratings."""

    log_odds: FloatArray  # (K,) of belonging
    centre: FloatArray  # (K,) of strengths
    sd: float  # of strengths around it; 0: they are the centre
    offset_mean: float
    offset_sd: float  # 0: no offset
    factor_sd: float
    scales: FloatArray  # multiples of the noise scale to choose from
    scale_logs: FloatArray  # log prior probability of each


class Rated(NamedTuple):
    """The row's ratings."""

    codes: Codes  # (ratings,) rows of the other side
    levels: Codes  # (ratings,)
    noise: FloatArray  # (ratings,) noise scale at multiple 1
    base: float  # b0
    cutpoints: FloatArray


class FoldedRows(NamedTuple):
    """What was drawn, one row per independent copy; `packed` as in `Others`, copies end to end."""

    words: WordArray  # (copies, words)
    packed: FloatArray  # (copies × K,) up to `filled`
    filled: Codes  # (1,)
    offset: FloatArray  # (copies,)
    scale: NDArray[np.uint8]  # (copies,)
    factor: FloatArray  # (copies, rank)


class _Row(NamedTuple):
    """The row as it is now, and its ratings feature by feature."""

    inside: NDArray[np.uint8]  # (K,)
    strength: FloatArray  # (K,)
    level: FloatArray  # (2 + rank,) offset, noise multiple, factors
    score: FloatArray  # (ratings,)
    value: FloatArray  # log probability of each rating
    slope: FloatArray
    bend: FloatArray
    kept: FloatArray  # (3, ratings) what the last three were before a step
    ptr: Codes  # (K + 1,) ratings that feature k touches: `touched[ptr[k]:ptr[k + 1]]`
    touched: Codes
    part: FloatArray  # what they get at strength 1


@leaf
def _list_touched(others: Others, rated: Rated, place: Codes, touched: Codes, part: FloatArray) -> None:
    """Advance `place` by a rating for every feature that touches it, and write down which, where there is room."""
    for j in range(rated.codes.size):
        spot = others.first[rated.codes[j]]
        for w in range(others.words.shape[1]):
            left = others.words[rated.codes[j], w]
            while left != ZERO:
                k = 64 * w + np.int64(lowest_bit(left))
                if touched.size > 0:
                    touched[place[k]] = j
                    part[place[k]] = others.packed[spot] if others.packed.size > 0 else others.plain[k]
                place[k] += 1
                spot += 1
                left &= left - ONE


@kernel
def _new_row(others: Others, rated: Rated, n_features: int) -> _Row:
    """Return a row outside all features, with its ratings listed by feature."""
    counts = np.zeros(n_features, np.int64)
    _list_touched(others, rated, counts, np.empty(0, np.int64), np.empty(0))
    ptr = np.zeros(n_features + 1, np.int64)
    ptr[1:] = np.cumsum(counts)
    touched, part = np.empty(ptr[-1], np.int64), np.empty(ptr[-1])
    _list_touched(others, rated, ptr[:-1].copy(), touched, part)
    space, kept = np.empty((4, rated.codes.size)), np.empty((3, rated.codes.size))
    strength, level = np.zeros(n_features), np.zeros(2 + others.factor.shape[1])
    inside = np.zeros(n_features, np.uint8)
    return _Row(inside, strength, level, space[0], space[1], space[2], space[3], kept, ptr, touched, part)


@inlined
def _tail(x: float) -> tuple[float, float]:
    """Return Φ(x) and its density, from the nearest point of the grid by Taylor's series."""
    if x <= -_REACH:
        return 0.0, 0.0
    if x >= _REACH:
        return 1.0, 0.0
    place = np.int64((x + _REACH) * _PER_UNIT + 0.5)
    near, density = _GRID[place], _DENSITY[place]
    d = x - near
    square = near * near - 1.0
    below = _BELOW[place] + density * d * (1.0 - d * (0.5 * near - d * square / 6.0))
    return below, density * (1.0 - d * (near - d * (0.5 * square - d * near * (square - 2.0) / 6.0)))


@leaf
def log_level(level: int, score: float, noise: float, cutpoints: FloatArray) -> float:
    """Return the log probability of a level."""
    chance = _tail((cutpoints[level + 1] - score) / noise)[0] - _tail((cutpoints[level] - score) / noise)[0]
    return math.log(chance) if chance > _SURE else level_log_probability(level, score, noise, cutpoints)


@leaf
def level_slopes(level: int, score: float, noise: float, cutpoints: FloatArray) -> tuple[float, float, float]:
    """Return the log probability of a level with its first and second derivative in the score."""
    low, high = (cutpoints[level] - score) / noise, (cutpoints[level + 1] - score) / noise
    below_low, at_low = _tail(low)
    below_high, at_high = _tail(high)
    chance = below_high - below_low
    if chance < _SURE:
        return level_log_slopes(level, score, noise, cutpoints)
    per = 1.0 / (chance * noise)
    slope = (at_low - at_high) * per
    bend = (low * at_low if at_low > 0.0 else 0.0) - (high * at_high if at_high > 0.0 else 0.0)
    return math.log(chance), slope, bend * per / noise - slope * slope


@leaf
def fill_slopes(levels: Codes, scores: FloatArray, noise: FloatArray, cutpoints: FloatArray, out: FloatArray) -> None:
    """Fill (3, scores): the log probability of each level at its score, and its two derivatives."""
    for j in range(scores.size):
        out[0, j], out[1, j], out[2, j] = level_slopes(levels[j], scores[j], noise[j], cutpoints)


@leaf
def _look_up(row: _Row, rated: Rated, j: int) -> None:
    """Bring the log probability of rating j and its slopes up to its score."""
    noise = row.level[1] * rated.noise[j]
    row.value[j], row.slope[j], row.bend[j] = level_slopes(rated.levels[j], row.score[j], noise, rated.cutpoints)


@leaf
def _in_weight(row: _Row, rated: Rated, k: int, told: tuple[float, float, float]) -> float:
    """Return log w of being in feature k with strength s, or −∞ once it cannot exceed the need.

    The row is outside. Log probabilities are concave in the score, so their tangents bound what is left.
    """
    s, log_weight, need = told
    for t in range(row.ptr[k], row.ptr[k + 1]):
        log_weight += s * row.part[t] * row.slope[row.touched[t]]
    for t in range(row.ptr[k], row.ptr[k + 1]):
        if log_weight <= need:
            return -math.inf
        j = row.touched[t]
        move = s * row.part[t]
        noise = row.level[1] * rated.noise[j]
        there = log_level(rated.levels[j], row.score[j] + move, noise, rated.cutpoints)
        log_weight += there - row.value[j] - move * row.slope[j]
    return log_weight


@leaf
def _step_out(row: _Row, rated: Rated, k: int) -> float:
    """Take the row out of a feature, keeping what its ratings looked like; return what being in was worth."""
    worth = 0.0
    for t in range(row.ptr[k], row.ptr[k + 1]):
        j = row.touched[t]
        row.kept[0, j], row.kept[1, j], row.kept[2, j] = row.value[j], row.slope[j], row.bend[j]
        row.score[j] -= row.strength[k] * row.part[t]
        _look_up(row, rated, j)
        worth += row.kept[0, j] - row.value[j]
    return worth


@leaf
def _step_back(row: _Row, k: int) -> None:
    """Undo `_step_out`."""
    for t in range(row.ptr[k], row.ptr[k + 1]):
        j = row.touched[t]
        row.score[j] += row.strength[k] * row.part[t]
        row.value[j], row.slope[j], row.bend[j] = row.kept[0, j], row.kept[1, j], row.kept[2, j]


@leaf
def _choose_feature(row: _Row, rated: Rated, prior: RowPrior, k: int, greedy: bool, stream: Stream) -> None:
    """Choose between out and in with a strength; greedy: the likelier, at the likeliest strength."""
    was_in = row.inside[k] != 0
    worth = _step_out(row, rated, k) if was_in else 0.0
    s, log_weight = row.strength[k] if was_in else prior.centre[k], prior.log_odds[k]
    if prior.sd > 0.0:
        line, curve = 0.0, 0.0
        for t in range(row.ptr[k], row.ptr[k + 1]):
            line += row.part[t] * row.slope[row.touched[t]]
            curve -= row.part[t] * row.part[t] * row.bend[row.touched[t]]
        firm = 1.0 / (prior.sd * prior.sd)
        precision = firm + curve
        mean = (firm * prior.centre[k] + line) / precision
        if not was_in:
            s = mean if greedy else mean + normal(stream) / math.sqrt(precision)
        log_weight += 0.5 * math.log(firm / precision)
        log_weight += 0.5 * precision * (s - mean) ** 2 - 0.5 * firm * (s - prior.centre[k]) ** 2
    u = 0.5 if greedy else uniform(stream)
    need = math.log(u / (1.0 - u))
    if was_in:
        if log_weight + worth > need:
            _step_back(row, k)
        else:
            row.inside[k], row.strength[k] = 0, 0.0
    elif _in_weight(row, rated, k, (s, log_weight, need)) > need:
        row.inside[k], row.strength[k] = 1, s
        for t in range(row.ptr[k], row.ptr[k + 1]):
            row.score[row.touched[t]] += s * row.part[t]
            _look_up(row, rated, row.touched[t])


@leaf
def _choose_scale(row: _Row, rated: Rated, prior: RowPrior, weights: FloatArray, stream: Stream) -> int:
    """Draw which multiple of the noise scale is the row's."""
    for scale in range(weights.size):
        weights[scale] = prior.scale_logs[scale]
        for j in range(row.score.size):
            noise = prior.scales[scale] * rated.noise[j]
            weights[scale] += log_level(rated.levels[j], row.score[j], noise, rated.cutpoints)
    normalise_logs(weights)
    chosen = pick_by_logs(stream, weights)
    row.level[1] = prior.scales[chosen]
    return chosen


@leaf
def _fill_design(row: _Row, others: Others, rated: Rated, prior: RowPrior, space: tuple) -> int:
    """List what is normal given latent scores, column by column: strengths, offset, factors; return how many."""
    design, at, centre, firm = space
    design[:] = 0.0
    size = 0
    if prior.sd > 0.0:
        for k in range(row.inside.size):
            if row.inside[k] != 0:
                for t in range(row.ptr[k], row.ptr[k + 1]):
                    design[row.touched[t], size] = row.part[t]
                at[size], centre[size], firm[size] = row.strength[k], prior.centre[k], 1.0 / prior.sd**2
                size += 1
    if prior.offset_sd > 0.0:
        design[:, size] = 1.0
        at[size], centre[size], firm[size] = row.level[0], prior.offset_mean, 1.0 / prior.offset_sd**2
        size += 1
    for a in range(others.factor.shape[1]):
        for j in range(rated.codes.size):
            design[j, size] = others.factor[rated.codes[j], a]
        at[size], centre[size], firm[size] = row.level[2 + a], 0.0, 1.0 / prior.factor_sd**2
        size += 1
    return size


@leaf
def _renew_normals(row: _Row, others: Others, rated: Rated, prior: RowPrior, space: tuple, stream: Stream) -> None:
    """Draw latent scores, and given them strengths, offset and factors, as a step from where they are."""
    design, at, centre, firm, matrix, linear = space
    size = _fill_design(row, others, rated, prior, (design, at, centre, firm))
    if size == 0:
        return
    precision, step = matrix[:size, :size], linear[:size]
    for a in range(size):
        precision[a, :] = 0.0
        precision[a, a] = firm[a]
        step[a] = firm[a] * (centre[a] - at[a])
    for j in range(row.score.size):
        noise = row.level[1] * rated.noise[j]
        low = (rated.cutpoints[rated.levels[j]] - row.score[j]) / noise
        high = (rated.cutpoints[rated.levels[j] + 1] - row.score[j]) / noise
        pull = truncated_normal(stream, low, high) / noise
        for a in range(size):
            if design[j, a] != 0.0:
                step[a] += pull * design[j, a]
                weighed = design[j, a] / (noise * noise)
                for b in range(a + 1):
                    precision[a, b] += weighed * design[j, b]
    factorise(precision)
    draw_normal(precision, step, stream)
    _take_step(row, design, step, (prior.sd > 0.0, prior.offset_sd > 0.0))
    for j in range(row.score.size):
        _look_up(row, rated, j)


@leaf
def _take_step(row: _Row, design: FloatArray, step: FloatArray, has: tuple[bool, bool]) -> None:
    """Add the step to strengths, offset and factors, and what it makes to the scores."""
    a = 0
    if has[0]:
        for k in range(row.inside.size):
            if row.inside[k] != 0:
                row.strength[k] += step[a]
                a += 1
    if has[1]:
        row.level[0] += step[a]
        a += 1
    for f in range(2, row.level.size):
        row.level[f] += step[a]
        a += 1
    for j in range(row.score.size):
        for b in range(a):
            row.score[j] += design[j, b] * step[b]


@leaf
def _start(row: _Row, others: Others, rated: Rated, prior: RowPrior) -> int:
    """Put the row where its prior is, with the offset its ratings pull it to; return its noise multiple's number."""
    row.inside[:] = 0
    row.strength[:] = 0.0
    row.level[:] = 0.0
    row.level[0] = prior.offset_mean
    chosen = 0
    for scale in range(prior.scales.size):
        if prior.scale_logs[scale] > prior.scale_logs[chosen]:
            chosen = scale
    row.level[1] = prior.scales[chosen]
    for j in range(row.score.size):
        row.score[j] = rated.base + others.offset[rated.codes[j]] + row.level[0]
        _look_up(row, rated, j)
    for _ in range(2 if prior.offset_sd > 0.0 else 0):
        firm = 1.0 / prior.offset_sd**2
        line = firm * (prior.offset_mean - row.level[0]) + row.slope.sum()
        step = line / (firm - row.bend.sum())
        row.level[0] += step
        for j in range(row.score.size):
            row.score[j] += step
            _look_up(row, rated, j)
    return chosen


@leaf
def _write(row: _Row, copy: int, chosen: int, out: FoldedRows) -> None:
    """Write the row down as a copy."""
    out.words[copy, :] = ZERO
    for k in range(row.inside.size):
        if row.inside[k] != 0:
            out.words[copy, k >> 6] |= ONE << np.uint64(k & 63)
            out.packed[out.filled[0]] = row.strength[k]
            out.filled[0] += 1
    out.offset[copy], out.scale[copy] = row.level[0], chosen
    for f in range(2, row.level.size):
        out.factor[copy, f - 2] = row.level[f]


@kernel
def fold_row(
    others: Others, prior: RowPrior, rated: Rated, scans: int, key: np.uint64, place: np.uint64, out: FoldedRows
) -> None:
    """Draw copies of the row given its ratings: a greedy start each, then so many scans."""
    n_features, rank = prior.log_odds.size, others.factor.shape[1]
    row = _new_row(others, rated, n_features)
    widest = n_features + 1 + rank
    columns = np.empty((4, widest))
    design, matrix = np.empty((rated.codes.size, widest)), np.empty((widest, widest))
    space = (design, columns[0], columns[1], columns[2], matrix, columns[3])
    order, weights, stream = np.arange(n_features), np.empty(prior.scales.size), new_stream()
    out.filled[0] = 0
    for copy in range(out.words.shape[0]):
        seek(stream, key, place, copy)
        chosen = _start(row, others, rated, prior)
        for scan in range(scans + 1):
            shuffle(stream, order)
            for k in order:
                _choose_feature(row, rated, prior, k, scan == 0, stream)
            if prior.scales.size > 1:
                chosen = _choose_scale(row, rated, prior, weights, stream)
            _renew_normals(row, others, rated, prior, space, stream)
        _write(row, copy, chosen, out)
