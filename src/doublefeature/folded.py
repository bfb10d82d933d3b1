"""A user or an item that was folded in: what the model answers about it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from doublefeature import answers
from doublefeature.answers import STRANGER, Fitted, Question, Recommendation, Wanted, item_code, user_code
from doublefeature.checks import check_count
from doublefeature.errors import RatingsError, show
from doublefeature.inference.evidence import effective_number
from doublefeature.inference.folding import NewRow
from doublefeature.kernels.fold_draws import StackedRows
from doublefeature.levels import Level, level_position
from doublefeature.model.state import members
from doublefeature.posterior import ranking
from doublefeature.posterior.draws import Posterior
from doublefeature.posterior.explain import Explanation, explain
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.prediction import Prediction, level_values
from doublefeature.posterior.questions import Open, what_is_open
from doublefeature.posterior.strangers import STRANGERS

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

_QUESTION_DRAWS = 48
_QUESTION_COPIES = 8


@dataclass(frozen=True, eq=False)
class Folded:
    """A user who was folded in: answers as for a known user. Without ratings the prior answers."""

    user: Hashable  # raw id, None for a new user
    ratings: Mapping[Hashable, Level]
    model: Fitted
    row: NewRow
    rows: StackedRows | None  # the user in every draw; None without ratings

    @property
    def code(self) -> int:
        """Code of the user in `posterior`: a stranger without ratings."""
        return STRANGER if self.rows is None else 0

    @cached_property
    def posterior(self) -> Posterior:
        """The draws with the user in place of all users; the model's without ratings."""
        return self.model.posterior_ if self.rows is None else self.model.fold_base_.posterior_of(self.rows)

    def predict(self, items: Iterable[Hashable]) -> Prediction:
        """Return the probability of every level for items; for unknown ones the prior answers."""
        asked = list(items)
        codes = np.array([item_code(self.model.ratings_, item) for item in asked], np.int64)
        table = predict_levels(self.posterior, np.full(codes.size, self.code), codes)
        known = np.stack([np.full(codes.size, self.code >= 0), codes >= 0], axis=1)
        return Prediction([(self.user, item) for item in asked], tuple(self.model.ratings_.levels), table, known)

    def recommend(
        self,
        n: int = 10,
        *,
        rank_by: ranking.RankBy = "mean",
        level: Level | None = None,
        quantile: float = 0.1,
        mass: float = ranking.INTERVAL_MASS,
        allow: Iterable[Hashable] | None = None,
        deny: Iterable[Hashable] | None = None,
        seed: int = 0,
    ) -> list[Recommendation]:
        """Return the n best items that the user has not rated (see `doublefeature.posterior.ranking.recommend`)."""
        wanted = Wanted(n, rank_by, level, quantile, mass, allow, deny, seed)
        return answers.recommend(self.model, self.posterior, self.code, self.row.codes, wanted, self._levels)

    def prefer(self, item_a: Hashable, item_b: Hashable) -> ranking.Preference:
        """Return how likely the user rates A above, level with, and below B."""
        return answers.prefer(self.model, self.posterior, self.code, item_a, item_b)

    def explain(self, item: Hashable, *, mass: float = 0.8) -> Explanation:
        """Take the score of the user and an item apart: base, offsets, and each feature of the point estimate."""
        allocation = self.model.allocation_
        own = self._in_estimate(allocation.user_members.shape[1])
        answer = explain(
            self.posterior,
            self.code,
            item_code(self.model.ratings_, item),
            mass=mass,
            allocation=replace(allocation, user_members=own[None, :]),
            align=lambda draw: self._aligned[draw.chain, draw.sweep],
        )
        return replace(answer, user=self.user, item=item, levels=tuple(self.model.ratings_.levels))

    def next_question(self, n: int = 1) -> list[Question]:
        """Return the n unseen items whose ratings, one by one, are expected to tell most about the user."""
        check_count("n", n, least=1)
        ratings = self.model.ratings_
        unseen = np.setdiff1d(np.arange(ratings.n_items), self.row.codes)
        gain = self._open.gain[unseen]
        best = np.argsort(-gain, kind="stable")[:n]
        labels = [ratings.items[item] for item in unseen[best].tolist()]
        means = self.predict(labels).mean.tolist() if labels else []
        return [
            Question(label, self.model.title(label), told, mean)
            for label, told, mean in zip(labels, gain[best].tolist(), means, strict=True)
        ]

    @cached_property
    def doubt(self) -> float:
        """How far expected ratings still depend on what is not known of the user: a standard deviation, in levels.

        It is averaged over all items, and falls as ratings tell more, unless they surprise.
        """
        return float(self._open.spread.mean())

    @cached_property
    def effective_draws(self) -> float:
        """How many draws would still speak if each were weighed by how well it foresaw the ratings.

        They are not weighed. Far below the number of draws, it says that draws differ in what they make of this user.
        """
        if self.code < 0:
            return float(len(self.posterior))
        return effective_number(self.model.fold_base_.log_evidence(self.row))

    @cached_property
    def _aligned(self) -> dict[tuple[int, int], tuple[Codes, NDArray[np.bool_]]]:
        """What features of each draw, by chain and sweep, are in the estimate; fold-in leaves features as they are."""
        return {(draw.chain, draw.sweep): self.model.aligner_(draw) for draw in self.model.posterior_}

    @cached_property
    def _copies(self) -> tuple[Posterior, Codes]:
        """Independent copies of the user in some of the draws: what is not known of the user given a draw."""
        draws = self.model.posterior_.draws
        spread = np.unique(np.linspace(0, len(draws) - 1, min(len(draws), _QUESTION_DRAWS)).astype(np.int64)).tolist()
        if self.code < 0:
            some = replace(self.model.posterior_, draws=[draws[place] for place in spread])
            return some, -1 - np.arange(STRANGERS)
        base = self.model.fold_base_
        copies = base.fold_user(self.row, copies=_QUESTION_COPIES, draws=spread)
        return base.posterior_of(copies), np.arange(_QUESTION_COPIES)

    @cached_property
    def _open(self) -> Open:
        ratings = self.model.ratings_
        return what_is_open(*self._copies, np.arange(ratings.n_items), level_values(ratings.levels))

    @cached_property
    def _levels(self) -> FloatArray | None:
        """Level probabilities of all items, (items, levels); None without ratings."""
        return None if self.rows is None else self.model.fold_base_.levels_of(self.rows)

    def _in_estimate(self, n_features: int) -> NDArray[np.bool_]:
        """Return which features of the estimate the user belongs to in most of the draws that have them."""
        inside, there = np.zeros(n_features), np.zeros(n_features)
        for draw in self.posterior if self.code >= 0 else ():
            index, turned = self._aligned[draw.chain, draw.sweep]
            matched = index >= 0
            bits = members(draw.user_words, np.arange(draw.n_features))[0] ^ turned
            there[index[matched]] += 1
            inside[index[matched]] += bits[matched]
        return 2 * inside > there


def fold_user(model: Fitted, ratings: Mapping[Hashable, Level], user: Hashable | None) -> Folded:
    """Fold in a user: a new one, or a known one whose ratings are now exactly these."""
    known = STRANGER if user is None else user_code(model.ratings_, user)
    codes, levels = coded(ratings, model.ratings_.item_code, model.ratings_.levels)
    table = model.ratings_.covariates.users
    covariates = np.zeros(0) if table is None or known < 0 else table[known]
    row = NewRow(codes, levels, covariates, known)
    return Folded(user, dict(ratings), model, row, model.fold_base_.fold_user(row) if codes.size else None)


def coded(
    ratings: Mapping[Hashable, Level], code: Callable[[Hashable], int], levels: Sequence[Level]
) -> tuple[Codes, Codes]:
    """Return codes and level positions of ratings by raw ids, codes ascending."""
    if not isinstance(ratings, Mapping):
        raise RatingsError(f"ratings to fold in are a mapping from id to level, got {show(ratings)}.")
    codes = np.array([code(other) for other in ratings], np.int64)
    places = {level: level_position(level, levels) for level in set(ratings.values())}
    positions = np.array([places[level] for level in ratings.values()], np.int64)
    order = np.argsort(codes)
    return codes[order], positions[order]
