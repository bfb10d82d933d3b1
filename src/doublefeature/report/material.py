"""What every section of the report speaks about, worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from doublefeature.errors import NotFittedError, SettingsError
from doublefeature.inference.diagnostics import Diagnosis
from doublefeature.levels import Level, format_levels
from doublefeature.posterior.feature_summary import FeatureSummary
from doublefeature.posterior.predict import n_levels_of
from doublefeature.posterior.prediction import level_values
from doublefeature.recommender import DoubleFeature
from doublefeature.report.markup import Html, label
from doublefeature.report.quality import Quality, measure
from doublefeature.report.svg import Axis, axis_around

STABLE = 0.8
"""A feature found in at least this share of draws is stable."""
UNSURE = 0.5
"""A feature found in a smaller share of draws is unsure."""
FEW = 5
"""Users and items with fewer ratings are known little."""

_LEVEL_ROOM = 40  # characters that fit above a chart on a phone


@dataclass(frozen=True, eq=False)
class Material:
    """A fitted model with its quality, its diagnosis and its features."""

    model: DoubleFeature
    mass: float

    @cached_property
    def quality(self) -> Quality | None:
        """How good it is on held-out ratings; None without them."""
        return measure(self.model)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Whether the chains agree."""
        return self.model.diagnose()

    @property
    def features(self) -> list[FeatureSummary]:
        """The features, the largest first."""
        return self.model.features_

    @cached_property
    def shared_features(self) -> list[tuple[int, FeatureSummary]]:
        """The features of two users or more with their numbers; all of them when there are no such."""
        numbered = list(enumerate(self.features))
        return [(k, feature) for k, feature in numbered if feature.users.size > 1] or numbered

    @property
    def n_private(self) -> int:
        """Number of features that are left out because they have a single user."""
        return len(self.features) - len(self.shared_features)

    @property
    def stable_features(self) -> int:
        """Number of features found in most draws."""
        return sum(feature.recurrence >= STABLE for feature in self.features)

    @property
    def graded(self) -> bool:
        """Whether items have effects of their own in their features."""
        return self.model.posterior_.graded

    def item_name(self, code: int) -> Html:
        """Return an item's title, or its id if it has none."""
        item = self.model.ratings_.items[code]
        return label(self.model.title(item) or item)

    def effect_interval(self, feature: FeatureSummary) -> tuple[float, float]:
        """Return the interval of a feature's effect: 95 % if that was asked for, else 80 %."""
        return feature.effect_95 if self.effect_mass > 0.9 else feature.effect_80

    @property
    def effect_mass(self) -> float:
        """Probability that effects' intervals hold."""
        return 0.95 if self.mass >= 0.95 else 0.8

    @cached_property
    def level_places(self) -> dict[Level, float]:
        """What each level counts as."""
        levels = self.model.ratings_.levels
        return dict(zip(levels, level_values(levels).tolist(), strict=True))

    @cached_property
    def level_axis(self) -> Axis:
        """The axis of ratings; of many levels, few enough for a phone are written."""
        pairs = [(place, level_text(level)) for level, place in self.level_places.items()]
        longest = max(len(text) for _, text in pairs)
        step = -(-len(pairs) * (longest + 1) // _LEVEL_ROOM)
        marks = pairs[::step] if len(pairs) > 2 else pairs
        return replace(axis_around(list(self.level_places.values()), pad=0.06), marks=tuple(marks))


def level_text(level: Level) -> str:
    """Return a level as short text."""
    text = str(level).removesuffix(".0")
    return text if len(text) <= 14 else f"{text[:13]}…"


def run_text(lower: Level, upper: Level) -> str:
    """Return a run of levels as short text: its ends, or the one level it is."""
    return level_text(lower) if lower == upper else f"{level_text(lower)} to {level_text(upper)}"


def scale_text(levels: Sequence[Level]) -> str:
    """Return all levels as text that can be read and can be broken: 1..5, or low < mid < high."""
    return " < ".join(map(str, levels)) if isinstance(levels[0], str) else format_levels(levels)


def gather(model: DoubleFeature, mass: float) -> Material:
    """Return the material of a fitted model, or raise when there is nothing to report on."""
    if not hasattr(model, "posterior_"):
        raise NotFittedError("this model has not been fitted. Call fit(ratings) first.")
    n_levels_of(model.posterior_)
    if not 0.0 < mass < 1.0:
        raise SettingsError(f"mass must lie between 0 and 1, got {mass!r}.")
    return Material(model, mass)
