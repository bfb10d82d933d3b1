"""What the model is and how far to trust it, as answers."""

from __future__ import annotations

import numpy as np

from doublefeature._version import __version__
from doublefeature.evaluation.reliability import calibration
from doublefeature.evaluation.scores import score_predictions
from doublefeature.model.state import NOISE
from doublefeature.posterior.arranging import spread_evenly
from doublefeature.posterior.draws import Trace
from doublefeature.posterior.prediction import level_values
from doublefeature.posterior.store import CARD
from doublefeature.server.models import Loaded
from doublefeature.server.schemas import catalogue as out

MOST_POINTS = 300
MOST_HELDOUT = 20_000
"""Held-out ratings looked at; of more, every so many."""


def info(loaded: Loaded, alarm: str | None) -> out.ModelInfo:
    """Say what is being served."""
    model = loaded.model
    ratings = model.ratings_
    return out.ModelInfo(
        model=loaded.version,
        folder=loaded.path.name,
        library=__version__,
        preset=model.preset,
        users=ratings.n_users,
        items=ratings.n_items,
        ratings=ratings.n_ratings,
        levels=list(ratings.levels),
        high_level=model.high_level,
        draws=len(model.posterior_),
        chains=len(model.posterior_.chains),
        finished=model.finished_,
        features=model.allocation_.n_features,
        titled=any("title" in row for row in model.items_.values()),
        user_example=loaded.users[0] if ratings.n_users else None,
        alarm=alarm,
        priors=model.priors_.to_dict(),
        schedule=model.schedule_.to_dict(),
    )


def card(loaded: Loaded) -> out.Card:
    """Return the card; empty when the folder has none."""
    try:
        text = (loaded.path / CARD).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    return out.Card(model=loaded.version, markdown=text)


def diagnosis(loaded: Loaded) -> out.Diagnosis:
    """Say whether the chains agree."""
    found = loaded.fact("diagnosis", loaded.model.diagnose)
    rows = [one.to_dict() for one in found.quantities]
    return out.Diagnosis(
        model=loaded.version,
        level=found.level,
        reasons=found.reasons(),
        advice=found.advice(),
        warmup=loaded.model.schedule_.warmup,
        quantities=[
            out.QuantityRow(**{key: row[key] for key in ("name", "mean", "sd", "rhat")}, ess=row["ess_bulk"])
            for row in rows
        ],
        traces=[_trace(trace) for trace in loaded.model.posterior_.traces],
    )


def quality(loaded: Loaded) -> out.Quality:
    """Say how good predictions of held-out ratings are."""
    return loaded.fact("quality", lambda: _quality(loaded))


def _quality(loaded: Loaded) -> out.Quality:
    heldout = loaded.model.heldout_
    if heldout is None or not heldout.n_ratings:
        nothing = dict.fromkeys(("exact", "within_one", "rmse", "coverage_80", "calibration_error"))
        return out.Quality(model=loaded.version, n=0, bins=[], **nothing)
    chosen = spread_evenly(heldout.n_ratings, MOST_HELDOUT)
    users, items, truth = (column[chosen].astype(np.int64) for column in heldout.triples())
    pairs = [(heldout.users[user], heldout.items[item]) for user, item in zip(users, items, strict=True)]
    proba = loaded.model.predict(pairs).proba
    scores = score_predictions(proba, truth, users, level_values(heldout.levels), resamples=20)
    names = ("exact", "within_one", "rmse", "coverage_80", "calibration_error")
    bins = [out.CalibrationBin(**one._asdict()) for one in calibration(proba, truth)]
    return out.Quality(
        model=loaded.version, n=int(truth.size), bins=bins, **{name: scores[name].value for name in names}
    )


def _trace(trace: Trace) -> out.TraceRow:
    chosen = spread_evenly(trace.n_features.size, MOST_POINTS)
    return out.TraceRow(
        chain=trace.chain,
        sweeps=(chosen + 1).tolist(),
        log_likelihood=trace.log_likelihood[chosen].tolist(),
        n_features=trace.n_features[chosen].tolist(),
        noise_scale=trace.hyper[chosen, NOISE].tolist(),
    )
