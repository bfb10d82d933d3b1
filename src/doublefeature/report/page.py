"""The report as one HTML page that needs no network, no script and no other file."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from doublefeature._version import __version__
from doublefeature.posterior.disk import disk_problems, write_whole
from doublefeature.recommender import DoubleFeature
from doublefeature.report.answers import top_section, users_section
from doublefeature.report.chains import chains_section
from doublefeature.report.findings import blocks_section, features_section
from doublefeature.report.markup import Html, join, paragraph, table, tag
from doublefeature.report.material import Material, gather
from doublefeature.report.sections import data_section, quality_section, section
from doublefeature.report.shards import sharded_verdict, shards_section
from doublefeature.report.verdict import trust_section, verdict
from doublefeature.sharded import ShardedDoubleFeature

_DOING = "writing the report"
_CONTENTS = (
    ("data", "Data"),
    ("quality", "How good"),
    ("chains", "Chains"),
    ("blocks", "Picture"),
    ("features", "Features"),
    ("top", "Top items"),
    ("users", "Users"),
    ("trust", "What to trust"),
    ("settings", "Settings"),
)
_SHARDED_CONTENTS = (
    ("data", "Data"),
    ("quality", "How good"),
    ("shards", "Shards"),
    ("top", "Top items"),
    ("users", "Users"),
    ("settings", "Settings"),
)
Section = Callable[[Material], Html]
_SECTIONS: tuple[Section, ...] = (
    data_section,
    quality_section,
    chains_section,
    blocks_section,
    features_section,
    top_section,
    users_section,
    trust_section,
)


def build_report(model: DoubleFeature, *, mass: float = 0.8) -> str:
    """Return a page about a fitted model, in plain words; the same model gives the same page.

    Parameters
    ----------
    mass
        Probability that predicted intervals hold. Effects have 80 % intervals, or 95 % from 0.95 on.
    """
    if isinstance(model, ShardedDoubleFeature):
        material = Material(model, mass)
        sections = (data_section, quality_section, shards_section(model), top_section, users_section)
        return _page(_SHARDED_CONTENTS, sharded_verdict(material, model), sections, material)
    material = gather(model, mass)
    return _page(_CONTENTS, verdict(material), _SECTIONS, material)


def _page(contents: tuple[tuple[str, str], ...], opening: Html, sections: Sequence[Section], material: Material) -> str:
    """Return the page of an opening and sections."""
    links = tag("ul", *(tag("li", tag("a", name, href=f"#{place}")) for place, name in contents))
    body = tag(
        "body",
        tag("a", "Skip to the verdict", href="#main", class_="skip"),
        tag("header", tag("p", "doublefeature", class_="brand"), tag("h1", "What these ratings say, and how surely")),
        tag("nav", links, aria_label="Contents"),
        tag("main", opening, *(write(material) for write in sections), _settings(material), id="main"),
        tag("footer", paragraph(f"Written by doublefeature {__version__}. One file; it loads nothing from elsewhere.")),
    )
    return f"<!DOCTYPE html>\n{tag('html', _head(), body, lang='en')}\n"


def write_report(model: DoubleFeature, path: str | os.PathLike[str]) -> None:
    """Write the page to a file: all of it, or nothing."""
    target = Path(path)
    page = build_report(model).encode("utf-8")
    with disk_problems(target, _DOING):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page, _DOING)


def _head() -> Html:
    style = resources.files("doublefeature.report").joinpath("style.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", "doublefeature report"),
        tag("style", Html(style)),
    )


def _settings(material: Material) -> Html:
    model = material.model
    groups = (
        ("What the model is", model.priors_.to_dict()),
        ("How it was run", {**model.schedule_.to_dict(), "seed": model.seed, "draws kept": len(model.posterior_)}),
    )
    tables: list[Html] = []
    for title, values in groups:
        rows: list[list[object]] = [[key.replace("_", " "), _setting(value)] for key, value in values.items()]
        tables.append(join(tag("h3", title), table(["setting", "value"], rows, class_="facts")))
    inside = tag("details", tag("summary", "Show all settings"), *tables)
    return section("settings", "Settings", inside)


def _setting(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
