"""Every error a user can meet.

DoubleFeatureError
├── InputError              exit code 2: what was given cannot be used
│   ├── RatingsError        ratings, files and frames
│   ├── SettingsError       priors, schedules, presets, seeds
│   ├── NotFittedError      a question asked before `fit`
│   └── StoreError          a folder that is no model, or a damaged one
└── EnvironmentProblem      exit code 3: disk, permissions, a missing extra
    └── MissingExtraError   an optional dependency is not installed

Messages are one line: what was given, what is allowed, what to do. `show` writes what was given.
"""

from __future__ import annotations


class DoubleFeatureError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class InputError(DoubleFeatureError):
    """What was given cannot be used."""

    exit_code = 2


class RatingsError(InputError):
    """Ratings, or the file or frame they come from, cannot be used."""


class SettingsError(InputError):
    """A prior, schedule, preset or seed cannot be used."""


class NotFittedError(InputError):
    """The model was asked something before `fit`."""


class StoreError(InputError):
    """A folder is no model, is damaged, or cannot take what is to be stored."""


class EnvironmentProblem(DoubleFeatureError):
    """The machine does not allow what was asked: disk, permissions, packages."""

    exit_code = 3


class MissingExtraError(EnvironmentProblem):
    """An optional dependency is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs an optional package. Run: pip install 'doublefeature[{extra}]'")


def show(value: object) -> str:
    """Show any value on one short line."""
    text = repr(value)
    return shorten(text if text.isprintable() else repr(text))


def shorten(text: str) -> str:
    """Leave out the middle of a long text."""
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"
