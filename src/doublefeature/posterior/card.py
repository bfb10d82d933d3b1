"""The card of a model: what it was fitted on, how, and what it must not be used for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from doublefeature.levels import format_levels
from doublefeature.model.state import GRADE_SD

if TYPE_CHECKING:
    from doublefeature.posterior.store import ModelFolder

_LIMITS = """\
* Answers hold for people and items like those in the ratings; who rates what is not modelled.
* The posterior has many modes: read features together with their stability, and prefer answers averaged over chains.
* Probabilities are the model's own. Check them on ratings that were kept out before relying on them.
"""
_PRIVACY = """\
This folder contains the training ratings and the ids of the users who gave them. Every draw lists which users share
which features, so it can tell who is alike even where ids are pseudonyms. Treat it like the ratings themselves.
"""


def card_text(folder: ModelFolder, quality: Mapping[str, str] | None = None) -> str:
    """Return the card in Markdown.

    Parameters
    ----------
    quality
        Lines on how good the fit is, such as ``{"R-hat of the log likelihood": "1.02"}``.
    """
    return card_page(
        {
            "What it was fitted on": data_lines(folder),
            "How it was fitted": setting_lines(folder),
            "What came out": {**_draw_lines(folder), **(quality or {})},
        }
    )


def card_page(facts: Mapping[str, Mapping[str, str]]) -> str:
    """Return a card of these chapters, each with its lines, and what every model must not be used for."""
    parts = ["# A doublefeature model\n"]
    for title, lines in facts.items():
        rows = "\n".join(f"* {name}: {' '.join(str(value).split())}" for name, value in lines.items())
        parts.append(f"## {title}\n\n{rows}\n")
    parts += [f"## Limits\n\n{_LIMITS}", f"## Privacy\n\n{_PRIVACY}"]
    return "\n".join(parts)


def data_lines(folder: ModelFolder) -> dict[str, str]:
    """Return what a model was fitted on."""
    outline = folder.outline
    users, items = len(outline.users), len(outline.items)
    lines = {
        "users": str(users),
        "items": str(items),
        "ratings": f"{outline.n_ratings} ({outline.n_ratings / max(1, users * items):.2%} of all pairs)",
        "levels": format_levels(outline.levels),
        "fingerprint": folder.fingerprint,
    }
    if folder.n_heldout:
        lines["kept out"] = f"{folder.n_heldout} ratings"
    return lines


def setting_lines(folder: ModelFolder) -> dict[str, str]:
    """Return how a model was fitted."""
    groups = {"priors": folder.priors, "schedule": folder.schedule, "moves": folder.moves}
    lines = {"doublefeature": folder.library, "preset": folder.preset, "seed": str(folder.seed)}
    for name, settings in groups.items():
        lines[name] = ", ".join(f"{key} {value}" for key, value in settings.to_dict().items())
    return lines


def _draw_lines(folder: ModelFolder) -> dict[str, str]:
    posterior = folder.posterior()
    wanted = folder.schedule.n_sweeps
    done = ", ".join(f"{sweeps} of {wanted}" for sweeps in folder.sweeps_done)
    lines = {"sweeps per chain": done, "draws": str(len(posterior))}
    if len(posterior):
        low, middle, high = np.quantile(posterior.n_features, [0.05, 0.5, 0.95])
        lines["features (K)"] = f"median {middle:g}, 90 % between {low:g} and {high:g}"
        low, middle, high = np.quantile(posterior.noise, [0.05, 0.5, 0.95])
        lines["noise scale"] = f"median {middle:.3g}, 90 % between {low:.3g} and {high:.3g}"
    if posterior.graded:
        spreads = [draw.hyper[GRADE_SD] for draw in posterior]
        low, middle, high = np.quantile(spreads, [0.05, 0.5, 0.95])
        lines["spread of items around a feature's effect"] = (
            f"median {middle:.3g}, 90 % between {low:.3g} and {high:.3g}"
        )
    return lines
