"""Draws, traces and states as arrays and back, with every invariant of the model checked.

A segment is a run of sweeps of one chain: a trace row for each, and the draws among them. The number of features
differs between draws, so what belongs to features is stored end to end; the trace says how many features each draw
has, as well as its hyperparameters and log likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import LEARNABLE, Priors, Schedule
from doublefeature.errors import StoreError
from doublefeature.model.state import RATE, State, build_model, empty_state, words_of
from doublefeature.posterior.arrays import Arrays, check_layout
from doublefeature.posterior.draws import Draw, Trace

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]

_HYPER = 6
_MOST_FEATURES = 2**31
_STACKED = ("item_offset", "user_offset", "user_scale", "cutpoints")
_JOINED = ("user_words", "item_words", "effect", "item_rate")


class Sizes(NamedTuple):
    """What draws and states of one model must agree with."""

    users: int
    items: int
    levels: int
    scales: int  # noise factors a user may have
    effect_values: tuple[float, ...]  # the only effects allowed, when not empty
    hyper: FloatArray  # hyperparameters that are held fixed, NaN where they are sampled


def sizes_of(priors: Priors, n_users: int, n_items: int, n_levels: int) -> Sizes:
    """Return the sizes of a model."""
    scales = build_model(priors, 0, 0, n_levels).scales.size
    sampled = [priors.noise_scale is None, *(name in priors.learn for name in LEARNABLE)]
    hyper = np.where(sampled, np.nan, empty_state(priors, 0, 0, n_levels).hyper)
    return Sizes(n_users, n_items, n_levels, scales, priors.effect_values, hyper)


class Place(NamedTuple):
    """Where a segment belongs: its chain, the sweeps before it, and which sweeps are kept."""

    chain: int
    before: int
    schedule: Schedule

    def kept(self, sweeps: int) -> NDArray[np.int64]:
        """Return the numbers of the sweeps that are kept as draws, among so many."""
        numbers = np.arange(self.before + 1, self.before + sweeps + 1)
        return numbers[[self.schedule.keeps(number) for number in numbers.tolist()]]


def encode_segment(trace: Trace, draws: Sequence[Draw], place: Place) -> Arrays:
    """Return a run of sweeps as arrays; draws that are not those the schedule keeps are refused."""
    rows = [draw.sweep - place.before - 1 for draw in draws]
    wanted = place.kept(trace.n_features.size).tolist()
    if [draw.sweep for draw in draws] != wanted or not all(
        draw.chain == trace.chain == place.chain
        and draw.n_features == trace.n_features[row]
        and draw.log_likelihood == trace.log_likelihood[row]
        and np.array_equal(draw.hyper, trace.hyper[row])
        for draw, row in zip(draws, rows, strict=True)
    ):
        raise StoreError(f"the draws of chain {place.chain} are not those of its trace and schedule: not stored")
    arrays = {
        "trace.log_likelihood": trace.log_likelihood,
        "trace.n_features": trace.n_features,
        "trace.hyper": trace.hyper,
        "tally": trace.tally,
        "sweep": np.array(wanted, np.int64),
    }
    kinds = {"user_words": np.uint64, "item_words": np.uint64, "user_scale": np.uint8}
    for name in (*_JOINED, *_STACKED):
        parts = [np.asarray(getattr(draw, name)) for draw in draws]
        kind = kinds.get(name, np.float64)
        if name in _JOINED:
            arrays[name] = np.concatenate([np.zeros(0, kind), *(part.ravel() for part in parts)])
        elif draws:
            arrays[name] = np.stack(parts)
    return arrays


def decode_segment(arrays: Arrays, sizes: Sizes, place: Place, move_names: tuple[str, ...]) -> tuple[Trace, list[Draw]]:
    """Check a segment's arrays and return its trace and draws, which are views of the arrays."""
    trace = _decode_trace(arrays, sizes, place, move_names)
    kept = place.kept(trace.n_features.size)
    rows = kept - place.before - 1
    n_features = trace.n_features[rows]
    n_words = np.maximum(1, -(-n_features // 64))
    total, words = int(n_features.sum()), int(n_words.sum())
    stacked = {
        "item_offset": ("F64", (kept.size, sizes.items)),
        "user_offset": ("F64", (kept.size, sizes.users)),
        "user_scale": ("U8", (kept.size, sizes.users)),
        "cutpoints": ("F64", (kept.size, sizes.levels + 1)),
    }
    layout = {
        "sweep": ("I64", (kept.size,)),
        "user_words": ("U64", (words * sizes.users,)),
        "item_words": ("U64", (words * sizes.items,)),
        "effect": ("F64", (total,)),
        "item_rate": ("F64", (total,)),
        **(stacked if kept.size else {}),
    }
    check_layout({name: array for name, array in arrays.items() if name not in _TRACE}, layout)
    if not np.array_equal(arrays["sweep"], kept):
        raise StoreError("the draws are not those the schedule keeps")
    if kept.size:
        _check_values(arrays, sizes)
    return trace, _decode_draws(arrays, sizes, trace, kept, rows)


_TRACE = ("trace.log_likelihood", "trace.n_features", "trace.hyper", "tally")


def _decode_trace(arrays: Arrays, sizes: Sizes, place: Place, move_names: tuple[str, ...]) -> Trace:
    n_rows = arrays["trace.n_features"].size if "trace.n_features" in arrays else 0
    layout = {
        "trace.log_likelihood": ("F64", (n_rows,)),
        "trace.n_features": ("I64", (n_rows,)),
        "trace.hyper": ("F64", (n_rows, _HYPER)),
        "tally": ("I64", (len(move_names), 2)),
    }
    check_layout({name: array for name, array in arrays.items() if name in _TRACE}, layout)
    log_likelihood, n_features, hyper, tally = (arrays[name] for name in _TRACE)
    if not np.isfinite(log_likelihood).all():
        raise StoreError("a log likelihood is not finite")
    if n_features.size and not 0 <= n_features.min() <= n_features.max() <= _MOST_FEATURES:
        raise StoreError("a number of features is out of range")
    if (tally < 0).any() or (tally[:, 1] > tally[:, 0]).any():
        raise StoreError("more moves were accepted than tried")
    _check_hyper(hyper, sizes)
    return Trace(place.chain, log_likelihood, n_features, hyper, tally, move_names)


def _decode_draws(
    arrays: Arrays, sizes: Sizes, trace: Trace, kept: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[Draw]:
    draws = []
    feature, word = 0, 0
    for place, (sweep, row) in enumerate(zip(kept.tolist(), rows.tolist(), strict=True)):
        count = int(trace.n_features[row])
        width = max(1, -(-count // 64))
        users = arrays["user_words"][word * sizes.users : (word + width) * sizes.users].reshape(-1, width)
        items = arrays["item_words"][word * sizes.items : (word + width) * sizes.items].reshape(-1, width)
        _check_members(users, items, _full_words(count, width))
        own = slice(feature, feature + count)
        draws.append(
            Draw(
                chain=trace.chain,
                sweep=sweep,
                log_likelihood=float(trace.log_likelihood[row]),
                user_words=users,
                item_words=items,
                effect=arrays["effect"][own],
                item_rate=arrays["item_rate"][own],
                hyper=trace.hyper[row],
                **{name: arrays[name][place] for name in _STACKED},
            )
        )
        feature, word = feature + count, word + width
    return draws


def encode_state(state: State) -> Arrays:
    """Return a state as arrays."""
    return dict(zip(State._fields, state, strict=True))


def decode_state(arrays: Arrays, sizes: Sizes, trace: Trace) -> State:
    """Check a state's arrays, also against the last row of its chain's trace, and return it."""
    width = arrays["user_words"].shape[-1] if "user_words" in arrays and arrays["user_words"].ndim == 2 else 0
    slots = 64 * width
    layout = {
        "user_words": ("U64", (sizes.users, width)),
        "item_words": ("U64", (sizes.items, width)),
        "active": ("U8", (slots,)),
        "effect": ("F64", (slots,)),
        "item_effect": ("F64", (0, slots)),
        "item_rate": ("F64", (slots,)),
        "item_offset": ("F64", (sizes.items,)),
        "user_offset": ("F64", (sizes.users,)),
        "user_scale": ("U8", (sizes.users,)),
        "cutpoints": ("F64", (sizes.levels + 1,)),
        "hyper": ("F64", (_HYPER,)),
    }
    check_layout(arrays, layout)
    state = State(**arrays)
    active = state.active.astype(bool)
    if width == 0 or (state.active > 1).any() or active.sum() != trace.n_features[-1]:
        raise StoreError("the state does not have the features its trace says")
    if not np.array_equal(state.hyper, trace.hyper[-1]):
        raise StoreError("the state does not have the hyperparameters its trace says")
    _check_members(state.user_words, state.item_words, words_of(active[np.newaxis], width)[0])
    _check_values({**arrays, "effect": state.effect[active]}, sizes)
    if not np.isfinite(state.effect).all():
        raise StoreError("effect holds a number that is not finite")
    return state


def _full_words(count: int, width: int) -> WordArray:
    """Return a row of words with the first bits set."""
    left = np.clip(count - 64 * np.arange(width), 0, 64).tolist()
    return np.array([(1 << bits) - 1 for bits in left], np.uint64)


def _check_members(users: WordArray, items: WordArray, existing: WordArray) -> None:
    """Raise unless every feature has users, and nobody belongs to a feature that does not exist."""
    if not np.array_equal(np.bitwise_or.reduce(users, axis=0), existing):
        raise StoreError("a feature has no users, or users belong to a feature that does not exist")
    if (np.bitwise_or.reduce(items, axis=0) & ~existing).any():
        raise StoreError("items belong to a feature that does not exist")


def _check_values(arrays: Arrays, sizes: Sizes) -> None:
    for name in ("effect", "item_rate", "item_offset", "user_offset"):
        if not np.isfinite(arrays[name]).all():
            raise StoreError(f"{name} holds a number that is not finite")
    if (arrays["item_rate"] < 0).any() or (arrays["item_rate"] > 1).any():
        raise StoreError("an item rate is not a probability")
    if sizes.effect_values and not np.isin(arrays["effect"], sizes.effect_values).all():
        raise StoreError("an effect is not among the values the priors allow")
    if (arrays["user_scale"] >= sizes.scales).any():
        raise StoreError("a user has a noise factor that does not exist")
    cutpoints = arrays["cutpoints"]
    inner = cutpoints[..., 1:-1]
    ends = (cutpoints[..., 0] == -np.inf).all() and (cutpoints[..., -1] == np.inf).all()
    if not ends or not np.isfinite(inner).all() or (inner[..., 1:] <= inner[..., :-1]).any():
        raise StoreError("cutpoints do not rise from minus to plus infinity")


def _check_hyper(hyper: FloatArray, sizes: Sizes) -> None:
    if not np.isfinite(hyper).all() or (hyper <= 0).any() or (hyper[:, RATE] > 1).any():
        raise StoreError("noise scale, mass, rate and spreads must be positive numbers, the rate at most 1")
    fixed = ~np.isnan(sizes.hyper)
    if (hyper[:, fixed] != sizes.hyper[fixed]).any():
        raise StoreError("a hyperparameter that is not sampled differs from the priors'")
