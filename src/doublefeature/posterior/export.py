"""Export draws: one netCDF file that ArviZ reads, or a folder of Parquet or CSV tables.

Features have no identity from draw to draw. The netCDF file therefore holds label-free quantities only; the tables
hold every draw's features, whose numbers 0, 1, … mean something within that draw only.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
import shutil
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from doublefeature._version import __version__
from doublefeature.errors import EnvironmentProblem, InputError, MissingExtraError, show
from doublefeature.model.ordinal import level_cutpoints
from doublefeature.model.state import members
from doublefeature.posterior.convergence import HYPER_NAMES, check_fits, draw_probes, per_draw, plain_ids, probe_means
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.item_effects import membership_effects
from doublefeature.ratings import Ratings

if TYPE_CHECKING:
    from xarray import DataTree

MOST_ITEMS_PAIRED = 200
"""Number of items up to which the features that two items share are exported for all pairs."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_BATCH_ROWS = 250_000
_PER_DRAW = ("chain", "draw")

Columns = dict[str, NDArray[Any]]
Group = dict[str, tuple[tuple[str, ...], NDArray[Any]]]


def export_arviz(
    posterior: Posterior,
    ratings: Ratings,
    path: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    n_probes: int = 50,
    seed: int = 0,
) -> Path:
    """Write what `to_datatree` returns to a new netCDF file, and return its path."""
    with _new_target(path) as (target, part):
        tree = to_datatree(posterior, ratings, settings=settings, n_probes=n_probes, seed=seed)
        packed = {"zlib": True, "complevel": 1}
        encoding = {f"/{name}": dict.fromkeys(group.data_vars, packed) for name, group in tree.children.items()}
        tree.to_netcdf(part, engine="h5netcdf", encoding=encoding)
    return target


def export_csv(posterior: Posterior, ratings: Ratings, folder: str | Path) -> Path:
    """Write CSV tables into a new folder, and return it.

    draws (chain, sweep, log_likelihood, K, hyperparameters, inner cutpoints if they are free), item_offsets,
    user_offsets (if users have offsets), user_scales (if users have noise scales of their own), features (effect and
    rate), user_members and item_members (graded: with the item's effect). Text ids that a spreadsheet would run as a
    formula begin with an apostrophe.
    """
    ids = {role: _harmless(raw) for role, raw in _ids(ratings).items()}
    return _export_tables(posterior, ratings, folder, "csv", partial(_write_csv, ids))


def export_parquet(posterior: Posterior, ratings: Ratings, folder: str | Path) -> Path:
    """Write the tables of `export_csv` as Parquet files into a new folder, and return it."""
    try:
        import polars
    except ImportError:
        raise MissingExtraError("export to Parquet", "io") from None
    ids = {role: polars.Series(plain_ids(raw).tolist()) for role, raw in _ids(ratings).items()}
    return _export_tables(posterior, ratings, folder, "parquet", partial(_write_parquet, polars, ids))


def to_datatree(
    posterior: Posterior,
    ratings: Ratings,
    *,
    settings: Mapping[str, Any] | None = None,
    n_probes: int = 50,
    seed: int = 0,
) -> DataTree:
    """Return label-free quantities as an xarray tree; chains are cut to the shortest.

    * `posterior`: K, the log-likelihood `lp`, hyperparameters, offsets, inner cutpoints if they are free, users' noise
      scales where they have their own, predictive means of random pairs;
    * `sample_stats`: `lp`, n_features and the sweep of every draw;
    * `memberships`: number of features of every item and user, for graded features the sum of an item's effects; for
      at most 200 items the mean number of features that two items share, graded also of the product of their effects;
    * `observed_data`: level codes with codes of users and items.

    Parameters
    ----------
    settings
        Kept as JSON in the attributes.
    n_probes, seed
        How many (user, item) pairs are predicted, and the seed that draws them; as in `diagnose`.
    """
    try:
        import xarray

        import_module("h5netcdf")
    except ImportError:
        raise MissingExtraError("export to ArviZ", "arviz") from None
    check_fits(posterior, ratings)
    attributes = _attributes(posterior, ratings, settings or {})
    shortest = min(map(len, posterior.chains))
    places = {"chain": np.array([chain[0].chain for chain in posterior.chains]), "draw": np.arange(shortest)}
    common = places | {role: plain_ids(ids) for role, ids in _ids(ratings).items()}
    found, pairs = _posterior_group(posterior, ratings, n_probes, seed)
    groups = {
        "posterior": xarray.Dataset(found, {**common, **pairs}, attributes),
        "sample_stats": xarray.Dataset(_sample_stats(posterior), places),
        "memberships": xarray.Dataset(_memberships(posterior), {**common, "other_item": common["item"]}),
        "observed_data": xarray.Dataset(*_observed(ratings)),
    }
    return xarray.DataTree.from_dict({"/": xarray.Dataset(attrs=attributes), **groups})


def _attributes(posterior: Posterior, ratings: Ratings, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "inference_library": "doublefeature",
        "inference_library_version": __version__,
        "settings": json.dumps(dict(settings), default=str),
        "levels": json.dumps(list(ratings.levels)),
        "base_score": posterior.base,
        "data_fingerprint": ratings.fingerprint,
    }


def _posterior_group(posterior: Posterior, ratings: Ratings, n_probes: int, seed: int) -> tuple[Group, Group]:
    """Return the variables of the group, and the pairs behind `predictive_mean`."""
    hyper = per_draw(posterior, lambda draw: draw.hyper)
    probes = draw_probes(ratings, n_probes, seed)
    found: Group = {
        "lp": (_PER_DRAW, per_draw(posterior, lambda draw: draw.log_likelihood)),
        "K": (_PER_DRAW, per_draw(posterior, lambda draw: draw.n_features)),
        **{name: (_PER_DRAW, hyper[..., place]) for place, name in enumerate(HYPER_NAMES)},
        "item_offset": ((*_PER_DRAW, "item"), per_draw(posterior, lambda draw: draw.item_offset)),
        "predictive_mean": ((*_PER_DRAW, "probe"), probe_means(posterior, ratings, probes)),
    }
    if _has_free_cutpoints(posterior):
        inner = per_draw(posterior, lambda draw: draw.cutpoints[1:-1])
        found["cutpoints"] = ((*_PER_DRAW, "cutpoint"), inner)
    if posterior.scales.size > 1:
        scales = per_draw(posterior, lambda draw: posterior.scales[draw.user_scale])
        found["user_scale"] = ((*_PER_DRAW, "user"), scales)
    if _has_user_offsets(posterior):
        found["user_offset"] = ((*_PER_DRAW, "user"), per_draw(posterior, lambda draw: draw.user_offset))
    pairs: Group = {
        "probe_user": (("probe",), plain_ids(ratings.users)[probes.users]),
        "probe_item": (("probe",), plain_ids(ratings.items)[probes.items]),
    }
    return found, pairs


def _sample_stats(posterior: Posterior) -> Group:
    return {
        "lp": (_PER_DRAW, per_draw(posterior, lambda draw: draw.log_likelihood)),
        "n_features": (_PER_DRAW, per_draw(posterior, lambda draw: draw.n_features)),
        "sweep": (_PER_DRAW, per_draw(posterior, lambda draw: draw.sweep)),
    }


def _memberships(posterior: Posterior) -> Group:
    def counts(words: NDArray[np.uint64]) -> NDArray[Any]:
        return np.asarray(np.bitwise_count(words).sum(axis=1, dtype=np.int32))

    found: Group = {
        "item_features": ((*_PER_DRAW, "item"), per_draw(posterior, lambda draw: counts(draw.item_words))),
        "user_features": ((*_PER_DRAW, "user"), per_draw(posterior, lambda draw: counts(draw.user_words))),
    }
    if posterior.graded:
        sums = per_draw(posterior, lambda draw: draw.effects_of().sum(axis=1))
        found["item_effects"] = ((*_PER_DRAW, "item"), sums)
    if posterior.draws[0].item_offset.size <= MOST_ITEMS_PAIRED:
        found["shared_features"] = _paired(posterior, _item_members)
        if posterior.graded:
            found["shared_effects"] = _paired(posterior, Draw.effects_of)
    return found


def _item_members(draw: Draw) -> NDArray[np.float64]:
    return members(draw.item_words, np.arange(draw.n_features)).astype(np.float64)


def _paired(posterior: Posterior, loads: Callable[[Draw], NDArray[np.float64]]) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return Σ_k x_ik x_jk of every two items, (chains, items, items), a mean over draws, of what features load."""
    shortest = min(map(len, posterior.chains))
    totals = []
    for chain in posterior.chains:
        each = (loads(draw) for draw in chain[:shortest])
        totals.append(sum(load @ load.T for load in each) / shortest)
    return ("chain", "item", "other_item"), np.array(totals)


def _observed(ratings: Ratings) -> tuple[Group, Group]:
    users, items, levels = ratings.triples()
    return {"level": (("rating",), levels)}, {"user_code": (("rating",), users), "item_code": (("rating",), items)}


def _ids(ratings: Ratings) -> dict[str, Sequence[Hashable]]:
    return {"user": ratings.users, "item": ratings.items}


def _harmless(ids: Sequence[Hashable]) -> list[int | str]:
    """Return plain ids, with an apostrophe before text that a spreadsheet would run."""
    risky = [isinstance(label, str) and label.startswith(_FORMULA_STARTS) for label in ids]
    return [f"'{label}" if run else label for label, run in zip(plain_ids(ids).tolist(), risky, strict=True)]


def _has_user_offsets(posterior: Posterior) -> bool:
    return any(draw.user_offset.any() for draw in posterior)


def _has_free_cutpoints(posterior: Posterior) -> bool:
    return any(not np.array_equal(draw.cutpoints, level_cutpoints(draw.cutpoints.size - 1)) for draw in posterior)


def _draw_row(cutpoints: bool, draw: Draw) -> Columns:
    values = {"log_likelihood": draw.log_likelihood, "K": draw.n_features}
    hyper = dict(zip(HYPER_NAMES, draw.hyper.tolist(), strict=True))
    inner = draw.cutpoints[1:-1].tolist() if cutpoints else []
    borders = {f"cutpoint_{place}": value for place, value in enumerate(inner, 1)}
    return _with_place(draw, {name: np.array([value]) for name, value in {**values, **hyper, **borders}.items()})


def _offsets(role: str, draw: Draw) -> Columns:
    values = draw.user_offset if role == "user" else draw.item_offset
    return _with_place(draw, {role: np.arange(values.size), "value": values})


def _features(draw: Draw) -> Columns:
    return _with_place(
        draw, {"feature": np.arange(draw.n_features), "effect": draw.effect, "item_rate": draw.item_rate}
    )


def _members(role: str, draw: Draw) -> Columns:
    words = draw.user_words if role == "user" else draw.item_words
    features, codes = np.nonzero(members(words, np.arange(draw.n_features)).T)
    columns: Columns = {"feature": features, role: codes}
    if role == "item" and draw.graded:
        columns["effect"] = membership_effects(draw, codes, features)
    return _with_place(draw, columns)


def _scales(scales: NDArray[np.float64], draw: Draw) -> Columns:
    return _with_place(draw, {"user": np.arange(draw.user_scale.size), "value": scales[draw.user_scale]})


def _with_place(draw: Draw, columns: Columns) -> Columns:
    rows = next(iter(columns.values())).size
    return {"chain": np.full(rows, draw.chain), "sweep": np.full(rows, draw.sweep), **columns}


def _tables(posterior: Posterior) -> dict[str, Callable[[Draw], Columns]]:
    tables: dict[str, Callable[[Draw], Columns]] = {}
    tables["draws"] = partial(_draw_row, _has_free_cutpoints(posterior))
    tables["item_offsets"] = partial(_offsets, "item")
    if _has_user_offsets(posterior):
        tables["user_offsets"] = partial(_offsets, "user")
    if posterior.scales.size > 1:
        tables["user_scales"] = partial(_scales, posterior.scales)
    members_of = {f"{role}_members": partial(_members, role) for role in ("user", "item")}
    return {**tables, "features": _features, **members_of}


def _export_tables(
    posterior: Posterior,
    ratings: Ratings,
    folder: str | Path,
    ending: str,
    write: Callable[[Path, Iterable[Columns]], None],
) -> Path:
    check_fits(posterior, ratings)
    with _new_target(folder) as (target, part):
        part.mkdir()
        for name, table in _tables(posterior).items():
            write(part / f"{name}.{ending}", map(table, posterior))
    return target


def _write_csv(ids: Mapping[str, Sequence[int | str]], path: Path, blocks: Iterable[Columns]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, block in enumerate(blocks):
            if number == 0:
                writer.writerow(block)
            cells = [
                [ids[name][code] for code in column.tolist()] if name in ids else column.tolist()
                for name, column in block.items()
            ]
            writer.writerows(zip(*cells, strict=True))


def _write_parquet(polars: Any, ids: Mapping[str, Any], path: Path, blocks: Iterable[Columns]) -> None:
    """Write batches of draws to files of their own, then join them, so that memory holds a batch at most."""
    parts = path.with_suffix(".parts")
    parts.mkdir()
    written: list[Path] = []
    for batch in _batches(blocks):
        columns = {name: np.concatenate([block[name] for block in batch]) for name in batch[0]}
        frame = polars.DataFrame({name: ids[name].gather(c) if name in ids else c for name, c in columns.items()})
        written.append(parts / f"{len(written):06}.parquet")
        frame.write_parquet(written[-1])
    polars.scan_parquet(written, glob=False).sink_parquet(path)
    shutil.rmtree(parts)


def _batches(blocks: Iterable[Columns]) -> Iterator[list[Columns]]:
    batch: list[Columns] = []
    rows = 0
    for block in blocks:
        batch.append(block)
        rows += block["chain"].size
        if rows >= _BATCH_ROWS:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


@contextmanager
def _new_target(path: str | Path) -> Iterator[tuple[Path, Path]]:
    """Yield a target that holds nothing yet, and a temporary name beside it that becomes the target at the end."""
    target = Path(os.path.abspath(path))  # noqa: PTH100
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        if target.exists() and (any(target.iterdir()) if target.is_dir() else target.stat().st_size):
            raise InputError(f"{show(str(path))} exists and is not empty. Choose another place, or remove it first.")
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target, part
        if target.is_dir():
            target.rmdir()
        os.replace(part, target)  # noqa: PTH105
    except OSError as problem:
        reason = problem.strerror or show(str(problem))
        raise EnvironmentProblem(f"{show(str(path))} cannot be written: {reason}.") from problem
    finally:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            part.unlink()
