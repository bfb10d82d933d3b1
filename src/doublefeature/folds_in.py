"""The part of the estimator that takes in users and items after the fit.

The sampler's code is imported where folding in begins: other answers do without it and start sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import Priors
from doublefeature.item_table import ItemTable
from doublefeature.levels import Level
from doublefeature.posterior.draws import Codes, Draw, Posterior
from doublefeature.posterior.features import Allocation
from doublefeature.ratings import Ratings

if TYPE_CHECKING:
    from doublefeature.folded import Folded
    from doublefeature.folded_item import FoldedItem
    from doublefeature.inference.folding import FoldBase


class FoldsIn:
    """Answers for users and items that the model was not fitted on, or whose ratings have changed since."""

    ratings_: Ratings
    posterior_: Posterior
    priors_: Priors
    items_: ItemTable
    seed: int
    _folder: Path | None

    def fold_in(self, ratings: Mapping[Hashable, Level], *, user: Hashable | None = None) -> Folded:
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
        self,
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
    def fold_base_(self) -> FoldBase:
        """The draws made ready to fold in; call its `prepare` to do at once what the first fold-in would do."""
        from doublefeature.inference.folding import FoldBase

        self._check_fitted()
        return FoldBase(self.posterior_, self.ratings_, self.priors_, self.seed, folder=self._folder)

    @cached_property
    def allocation_(self) -> Allocation:
        """The features as a point estimate."""
        raise NotImplementedError

    @cached_property
    def aligner_(self) -> Callable[[Draw], tuple[Codes, NDArray[np.bool_]]]:
        """What each feature of a draw is in the point estimate."""
        raise NotImplementedError

    def title(self, item: Hashable) -> str:
        """Return an item's title."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        raise NotImplementedError
