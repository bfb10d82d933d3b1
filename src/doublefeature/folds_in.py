"""The part of the estimator that takes in users and items after the fit.

The sampler's code is imported where folding in begins: other answers do without it and start sooner.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from doublefeature.answers import Fitted
from doublefeature.config import Priors
from doublefeature.levels import Level

if TYPE_CHECKING:
    from doublefeature.folded import Folded
    from doublefeature.folded_item import FoldedItem
    from doublefeature.inference.folding import FoldBase


class _Estimator(Fitted, Protocol):
    """What folding in needs of the estimator."""

    priors_: Priors
    seed: int
    _folder: Path | None

    def _check_fitted(self) -> None: ...


class FoldsIn:
    """Answers for users and items that the model was not fitted on, or whose ratings have changed since."""

    def fold_in(self: _Estimator, ratings: Mapping[Hashable, Level], *, user: Hashable | None = None) -> Folded:
        """Answer for a user with these ratings, without refitting: raw item ids to levels.

        Parameters
        ----------
        user
            None: a new user. The id of a known one: what the user's ratings are now, in place of those fitted on.
        """
        from doublefeature.folded import fold_user

        self._check_fitted()
        return fold_user(self, ratings, user)

    def fold_in_item(
        self: _Estimator,
        ratings: Mapping[Hashable, Level],
        *,
        item: Hashable | None = None,
        covariates: Mapping[str, str | float] | None = None,
    ) -> FoldedItem:
        """Answer for a new item with these ratings, without refitting: raw user ids to levels.

        Parameters
        ----------
        item
            What to call it.
        covariates
            Its columns, by the names that the model was fitted with. None: not known.
        """
        from doublefeature.folded_item import fold_item

        self._check_fitted()
        return fold_item(self, ratings, item, covariates)

    @cached_property
    def fold_base_(self: _Estimator) -> FoldBase:
        """The draws made ready to fold in; call its `prepare` to do at once what the first fold-in would do."""
        from doublefeature.inference.folding import FoldBase

        self._check_fitted()
        return FoldBase(self.posterior_, self.ratings_, self.priors_, self.seed, folder=self._folder)
