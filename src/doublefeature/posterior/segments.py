"""Draws, traces and states as arrays and back, with every invariant of the model checked.

A segment is a run of sweeps of one chain: a trace row for each, and the draws among them. The number of features
differs between draws, so what belongs to features is stored end to end; the trace says how many features each draw
has, as well as its hyperparameters and log likelihood. Effects of single items are there when features are graded.

Folders of format version 1 have two hyperparameters less; these are held fixed by the priors such folders can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.config import LEARNABLE, Priors, Schedule
from doublefeature.errors import StoreError
from doublefeature.model.state import RATE, State, build_model, empty_state, members, words_of
from doublefeature.posterior.arrays import Arrays, check_layout
from doublefeature.posterior.draws import Draw, Trace, member_starts, spread_effects
from doublefeature.ratings import NO_COVARIATES, Covariates

FloatArray = NDArray[np.float64]
WordArray = NDArray[np.uint64]

_HYPER_BEFORE = (6, 8, 9)  # hyperparameters in earlier formats
_MOST_FEATURES = 2**31
_STACKED = ("item_offset", "user_offset", "user_scale", "cutpoints")
_FACTORS = ("user_factor", "item_factor")
_JOINED = ("user_words", "item_words", "effect", "item_rate")


class Sizes(NamedTuple):
    """What draws and states of one model must agree with."""

    users: int
    items: int
    levels: int
    scales: int  # noise factors a user may have
    graded: bool  # whether items have effects of their own
    user_graded: bool  # whether users have grades
    rank: int  # of the remainder
    effect_values: tuple[float, ...]  # the only effects allowed, when not empty
    hyper: FloatArray  # hyperparameters that are held fixed, NaN where they are sampled
    weights: dict[str, int]  # how many weights for traits a state may have


def sizes_of(
    priors: Priors, n_users: int, n_items: int, n_levels: int, covariates: Covariates = NO_COVARIATES
) -> Sizes:
    """Return the sizes of a model, given how much is known of users and items besides the ratings."""
    scales = build_model(priors, 0, 0, n_levels).scales.size
    sampled = [priors.noise_scale is None, *(name in priors.learn for name in LEARNABLE)]
    hyper = np.where(sampled, np.nan, empty_state(priors, 0, 0, n_levels).hyper)
    weights = _weight_counts(priors, covariates)
    graded = priors.graded, priors.user_grades, priors.remainder
    return Sizes(n_users, n_items, n_levels, scales, *graded, priors.effect_values, hyper, weights)


def _weight_counts(priors: Priors, covariates: Covariates) -> dict[str, int]:
    """Return how many weights for traits a state of the model has."""
    chosen = priors.choices + 1 if priors.choices else 0
    of_users = 0 if covariates.users is None else covariates.users.shape[1]
    of_items = (chosen if priors.item_choices else 0) + (0 if covariates.items is None else covariates.items.shape[1])
    return {
        "user_weights": chosen + 1 if chosen or of_items else 0,
        "item_weights": of_items + 1 if of_items else 0,
        "user_offset_weights": chosen + of_users,
        "item_offset_weights": of_items,
    }


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
    if any(draw.graded for draw in draws):
        arrays["item_effect"] = np.concatenate([draw.item_effect for draw in draws])
    if any(draw.user_graded for draw in draws):
        arrays["user_grade"] = np.concatenate([draw.user_grade for draw in draws])
    if any(draw.rank for draw in draws):
        arrays |= {name: np.stack([getattr(draw, name) for draw in draws]) for name in _FACTORS}
    return arrays


def decode_segment(arrays: Arrays, sizes: Sizes, place: Place, move_names: tuple[str, ...]) -> tuple[Trace, list[Draw]]:
    """Check a segment's arrays and return its trace and draws, which are views of the arrays."""
    trace = _decode_trace(arrays, sizes, place, move_names)
    kept = place.kept(trace.n_features.size)
    rows = kept - place.before - 1
    n_features = trace.n_features[rows]
    n_words = np.maximum(1, -(-n_features // 64))
    total, words = int(n_features.sum()), int(n_words.sum())
    stacked: dict[str, tuple[str, tuple[int | None, ...]]] = {
        "item_offset": ("F64", (kept.size, sizes.items)),
        "user_offset": ("F64", (kept.size, sizes.users)),
        "user_scale": ("U8", (kept.size, sizes.users)),
        "cutpoints": ("F64", (kept.size, sizes.levels + 1)),
    }
    if sizes.rank:
        stacked["user_factor"] = ("F64", (kept.size, sizes.users, sizes.rank))
        stacked["item_factor"] = ("F64", (kept.size, sizes.items, sizes.rank))
    layout = {
        "sweep": ("I64", (kept.size,)),
        "user_words": ("U64", (words * sizes.users,)),
        "item_words": ("U64", (words * sizes.items,)),
        "effect": ("F64", (total,)),
        "item_rate": ("F64", (total,)),
        **(stacked if kept.size else {}),
        **({"item_effect": ("F64", (None,))} if sizes.graded and kept.size else {}),
        **({"user_grade": ("F64", (None,))} if sizes.user_graded and kept.size else {}),
    }
    check_layout({name: array for name, array in arrays.items() if name not in _TRACE}, layout)
    if not np.array_equal(arrays["sweep"], kept):
        raise StoreError("the draws are not those the schedule keeps")
    _check_memberships(arrays)
    if kept.size:
        _check_values(arrays, sizes)
    return trace, _decode_draws(arrays, sizes, trace, kept, rows)


_TRACE = ("trace.log_likelihood", "trace.n_features", "trace.hyper", "tally")


def _decode_trace(arrays: Arrays, sizes: Sizes, place: Place, move_names: tuple[str, ...]) -> Trace:
    n_rows = arrays["trace.n_features"].size if "trace.n_features" in arrays else 0
    layout = {
        "trace.log_likelihood": ("F64", (n_rows,)),
        "trace.n_features": ("I64", (n_rows,)),
        "trace.hyper": ("F64", (n_rows, None)),
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
    hyper = _whole_hyper(hyper, sizes)
    _check_hyper(hyper, sizes)
    return Trace(place.chain, log_likelihood, n_features, hyper, tally, move_names)


def _decode_draws(
    arrays: Arrays, sizes: Sizes, trace: Trace, kept: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[Draw]:
    draws = []
    feature, word, of_items, of_users = 0, 0, 0, 0
    nothing = np.zeros(0)
    for place, (sweep, row) in enumerate(zip(kept.tolist(), rows.tolist(), strict=True)):
        count = int(trace.n_features[row])
        width = max(1, -(-count // 64))
        users = arrays["user_words"][word * sizes.users : (word + width) * sizes.users].reshape(-1, width)
        items = arrays["item_words"][word * sizes.items : (word + width) * sizes.items].reshape(-1, width)
        _check_members(users, items, _full_words(count, width))
        own = slice(feature, feature + count)
        effects = slice(of_items, of_items + int(np.bitwise_count(items).sum(dtype=np.int64)))
        grades = slice(of_users, of_users + int(np.bitwise_count(users).sum(dtype=np.int64)))
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
                item_effect=arrays["item_effect"][effects] if sizes.graded else nothing,
                graded=sizes.graded,
                user_grade=arrays["user_grade"][grades] if sizes.user_graded else nothing,
                user_graded=sizes.user_graded,
                **{name: arrays[name][place] for name in (*_STACKED, *(_FACTORS if sizes.rank else ()))},
            )
        )
        feature, word, of_items, of_users = feature + count, word + width, effects.stop, grades.stop
    return draws


def encode_state(state: State) -> Arrays:
    """Return a state as arrays; effects of items and grades of users as in a draw, for memberships only."""
    arrays: Arrays = dict(zip(State._fields, state, strict=True))
    for name, words in (("item_effect", state.item_words), ("user_grade", state.user_words)):
        if not arrays[name].shape[0]:
            continue
        inside = members(words, np.arange(state.active.size))
        if arrays[name][~inside].any():
            raise StoreError(f"{name} holds a number where nobody belongs: not stored")
        arrays[name] = arrays[name][inside]
    return arrays


def decode_state(arrays: Arrays, sizes: Sizes, trace: Trace) -> State:
    """Check a state's arrays, also against the last row of its chain's trace, and return it."""
    width = arrays["user_words"].shape[-1] if "user_words" in arrays and arrays["user_words"].ndim == 2 else 0
    slots = 64 * width
    layout = {
        "user_words": ("U64", (sizes.users, width)),
        "item_words": ("U64", (sizes.items, width)),
        "active": ("U8", (slots,)),
        "effect": ("F64", (slots,)),
        "item_effect": ("F64", (None,) if sizes.graded else (0, slots)),
        "user_grade": ("F64", (None,) if sizes.user_graded else (0, slots)),
        "item_rate": ("F64", (slots,)),
        "item_offset": ("F64", (sizes.items,)),
        "user_offset": ("F64", (sizes.users,)),
        "user_scale": ("U8", (sizes.users,)),
        "cutpoints": ("F64", (sizes.levels + 1,)),
        "user_weights": ("F64", (slots, None)),
        "item_weights": ("F64", (slots, None)),
        "user_offset_weights": ("F64", (None,)),
        "item_offset_weights": ("F64", (None,)),
        "user_factor": ("F64", (sizes.users, sizes.rank)),
        "item_factor": ("F64", (sizes.items, sizes.rank)),
        "hyper": ("F64", (None,)),
    }
    arrays = {"user_grade": np.zeros((0, slots))} | arrays
    if not sizes.rank:
        arrays = {"user_factor": np.zeros((sizes.users, 0)), "item_factor": np.zeros((sizes.items, 0))} | arrays
    arrays = {name: np.zeros((slots, 0)) for name in ("user_weights", "item_weights")} | arrays
    arrays = {name: np.zeros(0) for name in ("user_offset_weights", "item_offset_weights")} | arrays
    check_layout(arrays, layout)
    _check_weights(arrays, sizes)
    arrays = {**arrays, "hyper": _whole_hyper(arrays["hyper"][np.newaxis], sizes)[0]}
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
    _check_memberships(arrays)
    for name, words in (("item_effect", state.item_words), ("user_grade", state.user_words)):
        if arrays[name].ndim == 1:
            arrays[name] = spread_effects(words, member_starts(words)[:-1], arrays[name], slots)
    return state._replace(item_effect=arrays["item_effect"], user_grade=arrays["user_grade"])


def _check_weights(arrays: Arrays, sizes: Sizes) -> None:
    """Raise unless weights are as many as the model has traits.

    A state made from a draw has none: draws do not keep them, and the next sweep finds them anew.
    """
    for name, size in sizes.weights.items():
        found = arrays[name]
        if found.shape[-1] not in (0, size):
            raise StoreError(f"the state's {name} do not fit the model")
        if not np.isfinite(found).all():
            raise StoreError(f"{name} hold a number that is not finite")


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


def _check_memberships(arrays: Arrays) -> None:
    """Raise unless effects of items and grades of users, where there are any, are as many as memberships."""
    for name, words in (("item_effect", "item_words"), ("user_grade", "user_words")):
        if name not in arrays or arrays[name].ndim > 1:
            continue
        if arrays[name].size != np.bitwise_count(arrays[words]).sum(dtype=np.int64):
            raise StoreError(f"{name} has more or fewer numbers than memberships")


def _whole_hyper(hyper: FloatArray, sizes: Sizes) -> FloatArray:
    """Return rows of hyperparameters with those that earlier formats did not have put in."""
    if hyper.shape[1] == sizes.hyper.size:
        return hyper
    added = sizes.hyper[hyper.shape[1] :]
    if hyper.shape[1] not in _HYPER_BEFORE or np.isnan(added).any():
        raise StoreError(f"there are {hyper.shape[1]} hyperparameters, which do not fit the model")
    return np.hstack([hyper, np.tile(added, (hyper.shape[0], 1))])


def _check_values(arrays: Arrays, sizes: Sizes) -> None:
    for name in ("effect", "item_effect", "user_grade", "item_rate", "item_offset", "user_offset", *_FACTORS):
        if name in arrays and not np.isfinite(arrays[name]).all():
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
