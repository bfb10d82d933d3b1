"""The models of this package and the rules without a model, as they are compared with others."""

from __future__ import annotations

import json
from functools import partial

from doublefeature.config import PRESETS, Moves, Schedule
from doublefeature.evaluation.baselines import BASELINES, Predictor, fit_baselines
from doublefeature.evaluation.peers.base import Answer, Codes, Fitted, Peer, Settings, allowed_threads
from doublefeature.evaluation.predictors import ModelPredictor
from doublefeature.inference.compiling import compile_kernels, needs_compiling
from doublefeature.ratings import Ratings
from doublefeature.recommender import DoubleFeature

OWN = "doublefeature"
"""Name of this package's default model, and how the names of its presets begin."""
AS_USUAL = 0
"""Stands for the sweeps that there are on so many ratings unless told."""
_PLAN = ("sweeps", "warmup", "thin", "chains")


def _fit_own(train: Ratings, settings: Settings, seed: int) -> Fitted:
    plan = {name: settings[name] for name in _PLAN}
    schedule = Schedule.from_dict({**plan, "sweeps": plan["sweeps"] or None, "threads": allowed_threads()})
    model = DoubleFeature(preset=str(settings["preset"]), schedule=schedule, seed=seed).fit(train)
    return _answering(ModelPredictor(model))


def _settle(train: Ratings, settings: Settings) -> Settings:
    """Say the number of sweeps where it is left to the number of ratings."""
    return settings if settings["sweeps"] else {**settings, "sweeps": Schedule().on_ratings(train.n_ratings).n_sweeps}


def _fit_rule(train: Ratings, settings: Settings, seed: int) -> Fitted:
    return _answering(next(one for one in fit_baselines(train, seed=seed) if one.name == settings["rule"]))


def _answering(predictor: Predictor) -> Fitted:
    def answer(users: Codes, items: Codes) -> Answer:
        found = predictor.predict(users, items)
        return Answer(found.mean, found.proba)

    return answer


def _compile(preset: str) -> None:
    if needs_compiling(preset):
        compile_kernels(preset)


def _own(name: str, preset: str) -> Peer:
    plan = {name: getattr(Schedule(), name) or AS_USUAL for name in _PLAN}
    return Peer(
        name=name,
        about=f"this package, preset {preset}",
        package="doublefeature",
        fit=_fit_own,
        defaults={"preset": preset, **plan},
        gives_levels=True,
        settle=_settle,
        prepare=partial(_compile, preset),
        meaning=json.dumps([PRESETS[preset].to_dict(), Moves().to_dict()], sort_keys=True),
    )


def _rule(rule: str) -> Peer:
    return Peer(
        name=rule.replace(" ", "-"),
        about={"constant": "shares of levels", "item mean": "mean of the item"}.get(rule, "user and item offsets"),
        package="doublefeature",
        fit=_fit_rule,
        defaults={"rule": rule},
        gives_levels=True,
    )


OWN_MODELS = (_own(OWN, DoubleFeature().preset), *(_own(f"{OWN}-{preset}", preset) for preset in PRESETS))
RULES = tuple(_rule(rule) for rule in BASELINES)
