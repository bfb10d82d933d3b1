"""Recommendations from ordinal ratings that can say why and how sure.

>>> import doublefeature as df
>>> ratings = df.read_ratings("ratings.csv")                 # doctest: +SKIP
>>> model = df.DoubleFeature(seed=1).fit(ratings)            # doctest: +SKIP
>>> model.predict([("u17", "Alien")]).proba                  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from doublefeature._version import __version__

if TYPE_CHECKING:
    from doublefeature.config import Moves, Priors, Schedule, Sharding, preset
    from doublefeature.covariates import with_covariates
    from doublefeature.datasets import load_dataset
    from doublefeature.errors import (
        DoubleFeatureError,
        NotFittedError,
        RatingsError,
        SettingsError,
        StoreError,
    )
    from doublefeature.inference.chain import Start, run_chain, sample
    from doublefeature.item_table import read_items, read_users
    from doublefeature.posterior.prediction import Prediction
    from doublefeature.ratings import Ratings
    from doublefeature.readers import ratings_folder, read_ratings
    from doublefeature.recommender import DoubleFeature
    from doublefeature.sharded import ShardedDoubleFeature, load

_HOMES = {
    "config": ("Moves", "Priors", "Schedule", "Sharding", "preset"),
    "covariates": ("with_covariates",),
    "datasets": ("load_dataset",),
    "errors": ("DoubleFeatureError", "NotFittedError", "RatingsError", "SettingsError", "StoreError"),
    "inference.chain": ("Start", "run_chain", "sample"),
    "posterior.prediction": ("Prediction",),
    "item_table": ("read_items", "read_users"),
    "ratings": ("Ratings",),
    "readers": ("ratings_folder", "read_ratings"),
    "recommender": ("DoubleFeature",),
    "sharded": ("ShardedDoubleFeature", "load"),
}

__all__ = [
    "DoubleFeature",
    "DoubleFeatureError",
    "Moves",
    "NotFittedError",
    "Prediction",
    "Priors",
    "Ratings",
    "RatingsError",
    "Schedule",
    "SettingsError",
    "ShardedDoubleFeature",
    "Sharding",
    "Start",
    "StoreError",
    "__version__",
    "load",
    "load_dataset",
    "preset",
    "ratings_folder",
    "read_items",
    "read_ratings",
    "read_users",
    "run_chain",
    "sample",
    "with_covariates",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home when it is first used, so that importing the package costs nothing."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"doublefeature.{home}"), name)
    raise AttributeError(f"module 'doublefeature' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
