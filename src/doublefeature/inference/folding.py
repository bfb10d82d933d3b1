"""Fold-in: a new user or item against the stored draws, without refitting.

In every draw the new row's memberships, strengths, offset, scale and factors are drawn given its ratings, everything
else in the draw as it is (see `doublefeature.kernels.fold`). The answer is a posterior of one row, for all
questions that draws can answer. Draws are not weighed by how well they foresaw the ratings, so what the new row would
teach about others is left out; so are features that the row would have alone.

Random numbers depend on the model, on the ratings in order of codes, and on the draw, on nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Priors
from doublefeature.inference.evidence import log_evidence
from doublefeature.inference.fold_stack import new_stacked_rows, one_draw, stack_of, with_rows
from doublefeature.inference.fold_views import enough_scans, fold, owner_log_odds, users_of, with_items
from doublefeature.inference.kept_tilts import kept_tilts
from doublefeature.inference.projection import Projection, project_items, project_users
from doublefeature.inference.tilts import Tilt, item_tilt, user_tilt
from doublefeature.kernels.fold import Others, Rated, RowPrior
from doublefeature.kernels.fold_draws import Stack, StackedPrior, StackedRows, add_row_levels, fold_draws
from doublefeature.model.choices import traits_of
from doublefeature.model.state import (
    GRADE_SD,
    ITEM_SD,
    NOISE,
    REMAINDER_SD,
    Model,
    build_model,
    members,
)
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.strangers import member_counts
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_ONE_SCALE: FloatArray = np.ones(1)
_CERTAIN: FloatArray = np.zeros(1)
_NOTHING: FloatArray = np.zeros(0)


class NewRow(NamedTuple):
    """A row's ratings, codes of the other side ascending, and what is known of the row besides."""

    codes: Codes
    levels: Codes
    covariates: FloatArray = _NOTHING  # a user's shift the offset, an item's memberships and offset; empty: unknown
    known: int = -1  # code of the user whose ratings these are now; −1: a new row


class FoldBase:
    """A posterior made ready to take in new rows: built once for a model, then asked for every row.

    Parameters
    ----------
    ratings, priors, seed
        What the model was fitted on, with and from.
    folder
        Where the model is kept, and with it what takes long to prepare.
    choices
        Whether the choice of items tells about a new user, where the model says so. False is for measuring.
    """

    def __init__(
        self,
        posterior: Posterior,
        ratings: Ratings,
        priors: Priors,
        seed: int,
        *,
        folder: Path | None = None,
        choices: bool = True,
    ) -> None:
        self.posterior = posterior
        self._ratings = ratings
        self._priors = priors
        self._folder = folder
        self._choices = choices
        self._tag = f"{seed} {ratings.fingerprint}".encode()

    def prepare(self) -> None:
        """Do now what the first fold-in of a user would do."""
        row = NewRow(np.zeros(1, np.int64), np.zeros(1, np.int64))
        self.fold_user(row, scans=0)

    def fold_user(
        self, row: NewRow, *, copies: int = 1, scans: int | None = None, draws: Sequence[int] | None = None
    ) -> StackedRows:
        """Return so many independent copies of a user in each of some draws (see `posterior_of` and `levels_of`)."""
        rows = new_stacked_rows(self._stack, draws, copies)
        scans = enough_scans(bool(self._stack.grade_sd.any())) if scans is None else scans
        fold_draws(self._stack, self.user_prior(row), row.codes, row.levels, scans, self._key(b"user", row), rows)
        return rows

    def posterior_of(self, rows: StackedRows) -> Posterior:
        """Return the draws with folded users in place of all users."""
        return with_rows(self.posterior, rows)

    def levels_of(self, rows: StackedRows) -> FloatArray:
        """Return the level probabilities of all items for a folded user, (items, levels)."""
        out = np.zeros((self._stack.offset.shape[1], self._stack.cutpoints.shape[1] - 1))
        add_row_levels(self._stack, rows, out)
        out /= rows.draws.size
        return out

    def fold_item(self, row: NewRow) -> Posterior:
        """Return the draws with the row in place of all items."""
        key, traits = self._key(b"item", row), self.item_traits(row)
        found = []
        for place, draw in enumerate(self.posterior):
            noise = draw.hyper[NOISE] * self.posterior.scales[draw.user_scale[row.codes]]
            rated = Rated(row.codes, row.levels, noise, self.posterior.base, draw.cutpoints)
            prior = self._item_prior(place, traits)
            rows = fold(draw, self._users[place], prior, rated, (enough_scans(draw.graded), key, 1))
            found.append(with_items(draw, rows))
        return Posterior(self.posterior.base, found, scales=self.posterior.scales)

    def log_evidence(self, row: NewRow) -> FloatArray:
        """Return how probable a user's ratings are in each draw, nearly: log p(ratings | draw)."""
        greedy, prior = self.fold_user(row, scans=0), self.user_prior(row)
        found = np.empty(len(self.posterior))
        for place, n_features in enumerate(self.posterior.n_features.tolist()):
            inside = members(greedy.words[place], np.arange(n_features))[0]
            found[place] = log_evidence(*one_draw(self._stack, prior, place, row.codes, row.levels), inside)
        return found

    def user_traits(self, items: Codes) -> FloatArray:
        """Return what a user's choice of items says, in the model's traits; nothing where it has none."""
        return self._user_projection.traits(items) if self._user_projection is not None else _NOTHING

    def item_traits(self, row: NewRow) -> FloatArray:
        """Return an item's traits: what its raters say, and its covariates (0 where they are not known)."""
        choices = self._item_projection.traits(row.codes) if self._item_projection is not None else _NOTHING
        table = self._ratings.covariates.items
        width = 0 if table is None else table.shape[1]
        return np.concatenate([choices, row.covariates if row.covariates.size else np.zeros(width)])

    def _key(self, side: bytes, row: NewRow) -> np.uint64:
        """Return 64 bits that stand for the model, the side and the ratings."""
        parts = (self._tag, side, row.codes.astype("<i8").tobytes(), row.levels.astype("<i8").tobytes())
        digest = hashlib.sha256(b"\n".join(parts)).digest()
        return np.uint64(int.from_bytes(digest[:8], "little"))

    def user_prior(self, row: NewRow) -> StackedPrior:
        """Return the prior of a user in all draws: that of a new one, less what a known one has put into it."""
        log_odds, mean = self._new_log_odds, np.zeros(len(self.posterior))
        if self._user_tilts is not None:
            traits = self.user_traits(row.codes)
            weights, offsets = self._stacked_tilts
            if weights.shape[1]:
                log_odds = weights[:, 0] + weights[:, 1:] @ traits
            mean = offsets[:, : traits.size] @ traits
            mean = mean + offsets[:, traits.size :][:, : row.covariates.size] @ row.covariates
        if row.known >= 0:
            log_odds = self._odds_without(row.known, log_odds)
        return StackedPrior(log_odds, mean)

    def _odds_without(self, user: int, log_odds: FloatArray) -> FloatArray:
        """Return the log odds of a known user: no feature of theirs alone, and without traits others' count only."""
        tilted = self._user_tilts is not None and self._stacked_tilts[0].shape[1] > 0
        found = []
        for place, draw in enumerate(self.posterior):
            inside = members(draw.user_words[user : user + 1], np.arange(draw.n_features))[0]
            counts = self._user_counts[place] - inside
            part = slice(self._stack.ptr[place], self._stack.ptr[place + 1])
            own = log_odds[part] if tilted else owner_log_odds(counts, draw.user_offset.size - 1)
            found.append(np.where(counts > 0, own, -np.inf))
        return np.concatenate(found)

    @cached_property
    def _stack(self) -> Stack:
        return stack_of(self.posterior, user_offsets=self._priors.user_offsets)

    @cached_property
    def _new_log_odds(self) -> FloatArray:
        """Log odds of a new user with no traits, all draws end to end."""
        return np.concatenate(
            [
                owner_log_odds(counts, draw.user_offset.size)
                for draw, counts in zip(self.posterior, self._user_counts, strict=True)
            ]
        )

    @cached_property
    def _stacked_tilts(self) -> tuple[FloatArray, FloatArray]:
        """Weights of users' traits in memberships, (all features, 1 + traits), and in offsets, (draws, traits)."""
        tilts = self._user_tilts or []
        return np.concatenate([tilt.weights for tilt in tilts]), np.stack([tilt.offset for tilt in tilts])

    def _item_prior(self, place: int, traits: FloatArray) -> RowPrior:
        draw, priors = self.posterior.draws[place], self._priors
        log_odds, mean = np.log(draw.item_rate) - np.log1p(-draw.item_rate), 0.0
        if self._item_tilts is not None:
            tilt = self._item_tilts[place]
            log_odds, mean = tilt.weights[:, 0] + tilt.weights[:, 1:] @ traits, float(tilt.offset @ traits)
        return RowPrior(
            log_odds=log_odds,
            centre=draw.effect,
            sd=float(draw.hyper[GRADE_SD]) if draw.graded else 0.0,
            offset_mean=mean,
            offset_sd=float(draw.hyper[ITEM_SD]) if priors.item_offsets else 0.0,
            factor_sd=float(draw.hyper[REMAINDER_SD]),
            scales=_ONE_SCALE,
            scale_logs=_CERTAIN,
        )

    @cached_property
    def _model(self) -> Model:
        ratings = self._ratings
        traits = traits_of(ratings.arrays, self._priors, ratings.covariates)
        return build_model(self._priors, ratings.n_users, ratings.n_items, ratings.n_levels, traits)

    @cached_property
    def _user_projection(self) -> Projection | None:
        return project_users(self._ratings.arrays, self._model.user_traits) if self._priors.choices else None

    @cached_property
    def _item_projection(self) -> Projection | None:
        if not self._priors.item_choices:
            return None
        return project_items(self._ratings.arrays, self._model.item_traits[:, : self._priors.choices + 1])

    @cached_property
    def _user_tilts(self) -> list[Tilt] | None:
        if not (self._choices and self._model.user_offset_traits.shape[1]):
            return None
        model = self._model
        return kept_tilts(self.posterior, self._folder, lambda: [user_tilt(draw, model) for draw in self.posterior])

    @cached_property
    def _item_tilts(self) -> list[Tilt] | None:
        if not self._model.item_traits.shape[1]:
            return None
        return [item_tilt(draw, self._model) for draw in self.posterior]

    @cached_property
    def _users(self) -> list[Others]:
        return [users_of(draw) for draw in self.posterior]

    @cached_property
    def _user_counts(self) -> list[FloatArray]:
        return [member_counts(draw.user_words, draw.n_features) for draw in self.posterior]
