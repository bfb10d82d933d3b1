"""What all figures share: their look, and how they become PNG and SVG. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from doublefeature.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "doublefeature",
}


def check_drawing() -> None:
    """Raise unless matplotlib is installed."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("drawing figures", "plot")


def draw_files(figures: Iterable[tuple[str, Figure]], title_size: int) -> dict[str, bytes]:
    """Return figures, drawn as they are asked for, under their file names, each as PNG and as SVG."""
    check_drawing()
    from matplotlib import rc_context

    files = {}
    with rc_context({**_STYLE, "axes.titlesize": title_size}):
        for name, figure in figures:
            for form in ("png", "svg"):
                files[f"{name}.{form}"] = _render(figure, form)
    return files


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _render(figure: Figure, form: str) -> bytes:
    out = io.BytesIO()
    details: dict[str, Any] = {"metadata": {"Date": None}} if form == "svg" else {"dpi": 150}
    figure.savefig(out, format=form, **details)
    return out.getvalue()
