"""A new row against one draw, the slow and obvious way: every subset of features, everything normal by quadrature."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from doublefeature.inference.fold_views import enough_scans, new_rows
from doublefeature.kernels.fold import Others, Rated, RowPrior, fold_row
from doublefeature.model.ordinal import level_cutpoints, level_probabilities
from doublefeature.model.state import members, words_of

NOISE = 0.6
"""Noise scale of the rating that is predicted."""


class Case(NamedTuple):
    others: Others
    prior: RowPrior
    rated: Rated
    asked: int  # row of the other side whose rating is predicted


class Answer(NamedTuple):
    evidence: float  # log p(ratings | draw)
    quantities: np.ndarray  # P(in feature k), mean offset, P(scale), P(level of the pair asked for)


def make_case(seed, *, features=3, ratings=7, rank=0, sd=0.6, offset_sd=0.5, scales=1, packed=True, levels=5):
    rng = np.random.default_rng(seed)
    rows = ratings + 1
    inside = rng.random((rows, features)) < 0.6
    n_words = max(1, -(-features // 64))
    others = Others(
        words_of(inside, n_words),
        np.cumsum(inside.sum(axis=1)) - inside.sum(axis=1),
        rng.normal(0.3, 1.0, int(inside.sum())) if packed else np.zeros(0),
        rng.normal(0.3, 1.0, features),
        rng.normal(0.0, 0.5, rows),
        rng.normal(0.0, 1.0, (rows, rank)),
    )
    logs = rng.normal(0.0, 0.5, scales)
    prior = RowPrior(
        log_odds=rng.normal(-0.7, 0.7, features),
        centre=rng.normal(1.0, 0.3, features),
        sd=sd,
        offset_mean=0.2 if offset_sd else 0.0,
        offset_sd=offset_sd,
        factor_sd=0.5,
        scales=np.linspace(0.7, 1.6, scales) if scales > 1 else np.ones(1),
        scale_logs=logs - np.log(np.exp(logs).sum()),
    )
    noise = rng.uniform(0.8, 1.2, ratings)
    rated = Rated(np.arange(ratings), rng.integers(0, levels, ratings), noise, levels / 2, level_cutpoints(levels))
    return Case(others, prior, rated, ratings)


def parts_of(case):
    """Return what each feature adds for every row of the other side at strength 1."""
    others = case.others
    inside = members(others.words, np.arange(case.prior.log_odds.size))
    parts = np.where(inside, others.plain, 0.0)
    if others.packed.size:
        parts[inside] = others.packed
    return parts


def exact(case, nodes=24):
    """Return the exact posterior of the row and the probability of its ratings."""
    prior, rated, parts = case.prior, case.rated, parts_of(case)
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    total, sums = 0.0, 0.0
    for bits in product((0, 1), repeat=prior.log_odds.size):
        on = np.flatnonzero(bits)
        chance = np.prod(
            [1.0 / (1.0 + np.exp(-lo if bit else lo)) for bit, lo in zip(bits, prior.log_odds, strict=True)]
        )
        free = [(prior.centre[k], prior.sd, parts[:, k]) for k in on if prior.sd > 0.0]
        free += [(prior.offset_mean, prior.offset_sd, np.ones(parts.shape[0]))] * (prior.offset_sd > 0.0)
        free += [(0.0, prior.factor_sd, column) for column in case.others.factor.T]
        fixed = parts[:, on] @ prior.centre[on] if prior.sd == 0.0 else np.zeros(parts.shape[0])
        mesh = np.indices([nodes] * len(free)).reshape(len(free), nodes ** len(free)).T
        weight = np.prod(weights[mesh], axis=1)
        values = [mean + spread * points[mesh[:, d]] for d, (mean, spread, _) in enumerate(free)]
        scores = rated.base + case.others.offset + fixed + np.zeros((mesh.shape[0], 1))
        for value, (_, _, column) in zip(values, free, strict=True):
            scores = scores + value[:, None] * column
        offset = values[-1 - case.others.factor.shape[1]] if prior.offset_sd > 0.0 else np.zeros(mesh.shape[0])
        for number, scale in enumerate(prior.scales):
            told = level_probabilities(scores[:, rated.codes], scale * rated.noise, rated.cutpoints)
            likelihood = np.prod([told[:, j, level] for j, level in enumerate(rated.levels)], axis=0)
            mass = chance * np.exp(prior.scale_logs[number]) * weight * likelihood
            there = level_probabilities(scores[:, case.asked], scale * NOISE, rated.cutpoints)
            picked = np.arange(prior.scales.size) == number
            total += mass.sum()
            sums = sums + np.concatenate(
                [mass.sum() * np.array(bits), [mass @ offset], mass.sum() * picked, mass @ there]
            )
    return Answer(float(np.log(total)), sums / total)


def folded(case, copies, scans=None, key=5):
    """Fold the row in, so many independent copies."""
    scans = enough_scans(case.prior.sd > 0.0) if scans is None else scans
    n_features, rank = case.prior.log_odds.size, case.others.factor.shape[1]
    rows = new_rows(copies, case.others.words.shape[1], n_features, rank)
    fold_row(case.others, case.prior, case.rated, scans, np.uint64(key), np.uint64(0), rows)
    return rows


def sampled(case, copies, **how):
    """Return the quantities of `Answer` in every copy, (copies, quantities)."""
    rows = folded(case, copies, **how)
    inside = members(rows.words, np.arange(case.prior.log_odds.size))
    strengths = np.zeros(inside.shape)
    strengths[inside] = rows.packed[: rows.filled[0]]
    scores = case.rated.base + case.others.offset[case.asked] + rows.offset + strengths @ parts_of(case)[case.asked]
    scores = scores + rows.factor @ case.others.factor[case.asked]
    noise = case.prior.scales[rows.scale] * NOISE
    there = level_probabilities(scores, noise, case.rated.cutpoints)
    picked = rows.scale[:, None] == np.arange(case.prior.scales.size)
    return np.hstack([inside, rows.offset[:, None], picked, there])


def largest_z(case, truth, copies=6_000, **how):
    """Return how many standard errors the fold-in is from the truth, at worst."""
    found = sampled(case, copies, **how)
    error = found.std(axis=0) / np.sqrt(copies) + 0.5 / copies
    return float((np.abs(found.mean(axis=0) - truth.quantities) / error).max())
