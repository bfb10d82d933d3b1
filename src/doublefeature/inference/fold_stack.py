"""Draws end to end for folding in users: one call of a kernel in place of one per draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from doublefeature.inference.fold_views import with_users
from doublefeature.kernels.fold import FoldedRows, Others, Rated, RowPrior
from doublefeature.kernels.fold_draws import Stack, StackedPrior, StackedRows, add_row_levels, fold_draws
from doublefeature.model.generative import scale_log_weights
from doublefeature.model.state import NOISE, REMAINDER_SD, SCALE_SD, USER_GRADE_SD, USER_SD
from doublefeature.outline import row_pointers
from doublefeature.posterior.draws import Posterior, member_starts

Codes = NDArray[np.int64]


def stack_of(posterior: Posterior, *, user_offsets: bool) -> Stack:
    """Return what draws say of items and of a user with no ratings."""
    draws = posterior.draws
    n_items, n_words = draws[0].item_offset.size, max(draw.item_words.shape[1] for draw in draws)
    words, first = np.zeros((len(draws), n_items, n_words), np.uint64), np.empty((len(draws), n_items), np.int64)
    before = 0
    for place, draw in enumerate(draws):
        words[place, :, : draw.item_words.shape[1]] = draw.item_words
        first[place] = before + member_starts(draw.item_words)[:-1]
        before += draw.item_effect.size
    hyper = np.stack([draw.hyper for draw in draws])
    return Stack(
        ptr=row_pointers(posterior.n_features),
        words=words,
        first=first,
        packed=np.concatenate([draw.item_effect for draw in draws]),
        plain=np.concatenate([draw.effect for draw in draws]),
        offset=np.stack([draw.item_offset for draw in draws]),
        factor=np.stack([draw.item_factor if draw.rank else np.zeros((n_items, 0)) for draw in draws]),
        noise=hyper[:, NOISE].copy(),
        cutpoints=np.stack([draw.cutpoints for draw in draws]),
        grade_sd=hyper[:, USER_GRADE_SD] * np.array([draw.user_graded for draw in draws]),
        offset_sd=hyper[:, USER_SD] * user_offsets,
        factor_sd=hyper[:, REMAINDER_SD].copy(),
        scales=posterior.scales.copy(),
        scale_logs=np.stack([scale_log_weights(posterior.scales, float(sd)) for sd in hyper[:, SCALE_SD]]),
        place=np.array([draw.chain << 32 | draw.sweep for draw in draws], np.uint64),
        base=posterior.base,
    )


def new_stacked_rows(stack: Stack, draws: Sequence[int] | None, copies: int) -> StackedRows:
    """Return space for so many copies of a user in each of some draws; None: all of them."""
    which = np.arange(stack.noise.size) if draws is None else np.array(draws, np.int64)
    room = copies * (stack.ptr[which + 1] - stack.ptr[which])
    return StackedRows(
        draws=which,
        words=np.zeros((which.size, copies, stack.words.shape[2]), np.uint64),
        start=np.cumsum(room) - room,
        packed=np.empty(int(room.sum())),
        filled=np.zeros((which.size, 1), np.int64),
        offset=np.zeros((which.size, copies)),
        scale=np.zeros((which.size, copies), np.uint8),
        factor=np.zeros((which.size, copies, stack.factor.shape[2])),
    )


def with_rows(posterior: Posterior, rows: StackedRows) -> Posterior:
    """Return the draws that a user was folded into, with the user's copies in place of all users."""
    found = []
    for n, place in enumerate(rows.draws.tolist()):
        draw = posterior.draws[place]
        words = np.ascontiguousarray(rows.words[n, :, : draw.item_words.shape[1]])
        packed = rows.packed[rows.start[n] :]
        found.append(
            with_users(draw, FoldedRows(words, packed, rows.filled[n], rows.offset[n], rows.scale[n], rows.factor[n]))
        )
    return Posterior(posterior.base, found, scales=posterior.scales)


def one_draw(
    stack: Stack, prior: StackedPrior, place: int, codes: Codes, levels: Codes
) -> tuple[Others, RowPrior, Rated]:
    """Return what one draw says of items, of the user, and of the user's ratings."""
    part = slice(stack.ptr[place], stack.ptr[place + 1])
    log_odds = prior.log_odds[part]
    others = Others(
        stack.words[place],
        stack.first[place],
        stack.packed,
        stack.plain[part],
        stack.offset[place],
        stack.factor[place],
    )
    of_row = RowPrior(
        log_odds=log_odds,
        centre=np.ones(log_odds.size),
        sd=float(stack.grade_sd[place]),
        offset_mean=float(prior.offset_mean[place]),
        offset_sd=float(stack.offset_sd[place]),
        factor_sd=float(stack.factor_sd[place]),
        scales=stack.scales,
        scale_logs=stack.scale_logs[place],
    )
    noise = np.full(codes.size, stack.noise[place])
    return others, of_row, Rated(codes, levels, noise, stack.base, stack.cutpoints[place])


def compile_fold_draws() -> None:
    """Compile what folding in a user runs, by folding into no draws."""
    none, table, cube = np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0))
    places = np.zeros(0, np.uint64)
    no_codes, codes = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    stack = Stack(
        ptr=np.zeros(1, np.int64),
        words=cube.astype(np.uint64),
        first=codes,
        packed=none,
        plain=none,
        offset=table,
        factor=cube,
        noise=none,
        cutpoints=table,
        grade_sd=none,
        offset_sd=none,
        factor_sd=none,
        scales=none,
        scale_logs=table,
        place=places,
        base=0.0,
    )
    rows = new_stacked_rows(stack, None, 1)
    fold_draws(stack, StackedPrior(none, none), no_codes, no_codes, 0, np.uint64(0), rows)
    add_row_levels(stack, rows, table)
