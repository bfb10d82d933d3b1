"""A draw as fold-in reads it, and with the rows that fold-in has drawn in place of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from doublefeature.kernels.fold import FoldedRows, Others, Rated, RowPrior, fold_row
from doublefeature.kernels.slopes import fill_slopes
from doublefeature.posterior.draws import Draw, member_starts

FloatArray = NDArray[np.float64]


def enough_scans(graded: bool) -> int:
    """Return how many scans over a new row's features follow the greedy start in each draw.

    More change nothing that 6,000 copies show; a membership that is renewed with its strength moves more freely.
    """
    return 2 if graded else 4


def owner_log_odds(counts: FloatArray, n_others: int) -> FloatArray:
    """Return the log odds m_k / (m + 1 − m_k) of one more user, given the owners among m others."""
    with np.errstate(divide="ignore"):
        odds: FloatArray = np.log(counts) - np.log(n_others + 1.0 - counts)
    return odds


def users_of(draw: Draw) -> Others:
    """Return the users of a draw, for an item to be folded in."""
    first, ones = member_starts(draw.user_words)[:-1], np.ones(draw.n_features)
    return Others(draw.user_words, first, draw.user_grade, ones, draw.user_offset, draw.user_factor)


def fold(draw: Draw, others: Others, prior: RowPrior, rated: Rated, told: tuple[int, np.uint64, int]) -> FoldedRows:
    """Fold a row into a draw: so many scans, a key of random numbers, so many copies."""
    scans, key, copies = told
    rows = new_rows(copies, others.words.shape[1], draw.n_features, draw.rank)
    place = np.uint64(draw.chain << 32 | draw.sweep)
    fold_row(others, prior, rated, scans, key, place, rows)
    return rows


def with_users(draw: Draw, rows: FoldedRows) -> Draw:
    """Return the draw with these rows in place of its users."""
    return draw._replace(
        user_words=rows.words,
        user_offset=rows.offset,
        user_scale=rows.scale,
        user_grade=rows.packed[: rows.filled[0]] if draw.user_graded else draw.user_grade,
        user_factor=rows.factor,
    )


def with_items(draw: Draw, rows: FoldedRows) -> Draw:
    """Return the draw with these rows in place of its items."""
    return draw._replace(
        item_words=rows.words,
        item_offset=rows.offset,
        item_effect=rows.packed[: rows.filled[0]] if draw.graded else draw.item_effect,
        item_factor=rows.factor,
        item_shares=np.zeros(0),
    )


def new_rows(copies: int, n_words: int, n_features: int, rank: int) -> FoldedRows:
    """Return space for so many copies of a row."""
    return FoldedRows(
        np.zeros((copies, n_words), np.uint64),
        np.empty(copies * n_features),
        np.zeros(1, np.int64),
        np.zeros(copies),
        np.zeros(copies, np.uint8),
        np.zeros((copies, rank)),
    )


def compile_fold() -> None:
    """Compile what folding in runs, by folding in a row with nothing."""
    none, no_codes = np.zeros(0), np.zeros(0, np.int64)
    others = Others(np.zeros((0, 1), np.uint64), no_codes, none, none, none, np.zeros((0, 0)))
    prior = RowPrior(none, none, 0.0, 0.0, 0.0, 1.0, np.ones(1), np.zeros(1))
    rated = Rated(no_codes, no_codes, none, 0.0, np.array([-np.inf, np.inf]))
    fold_row(others, prior, rated, 0, np.uint64(0), np.uint64(0), new_rows(1, 1, 0, 0))
    fill_slopes(no_codes, none, none, rated.cutpoints, np.zeros((3, 0)))
