"""Take a user out of a model folder, so that nothing of them is left in it.

The folder is written anew beside the old one and the two change places in one step, after which the old one is
removed. A kill at any moment leaves the old model or the new one; forgetting again finishes what was left undone.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from doublefeature._delimited import display_name
from doublefeature.errors import InputError
from doublefeature.model.state import State, members, words_of
from doublefeature.posterior.card import card_text
from doublefeature.posterior.disk import PARTIAL, Disk, disk_problems, sole_writer
from doublefeature.posterior.draws import Draw, Trace, draw_of
from doublefeature.posterior.loading import MANIFEST, ResumePoint
from doublefeature.posterior.steady import drop_user
from doublefeature.posterior.store import CARD, ModelFolder
from doublefeature.ratings import Ratings

REPORT = "report.html"
"""A page about the model; it shows users, so it is not carried over."""

ARRAYS = ".safetensors"
"""Ending of what is worked out from draws and kept beside them; it is worked out again when it is wanted."""

_OURS = {MANIFEST, CARD, REPORT}
_EXCHANGE = 2  # renameat2's flag
_HERE = -100  # AT_FDCWD


def forget(path: str | os.PathLike[str], user: Hashable) -> None:
    """Remove a user from the ratings, the ids and every stored draw of a model folder.

    Features that nobody else has end. Chains can be gone on with, from states without the user. The folder's report
    is removed too, as it shows users: write it again if it is wanted.
    """
    folder = Path(path)
    _finish_earlier(folder)
    with disk_problems(folder, "writing"), sole_writer(folder):
        model = ModelFolder.open(folder)
        if not model.ratings.has_user(user):
            raise InputError(f"{display_name(folder)} does not have this user. Give an id as in the ratings.")
        if model.ratings.n_users == 1:
            raise InputError(f"{display_name(folder)} has no other user. Remove the folder instead.")
        new = _beside(folder)
        try:
            _write_without(model, user, new)
            _change_places(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        Disk().sync_directory(folder.parent)


def _beside(folder: Path) -> Path:
    whole = folder.absolute()
    return whole.with_name(f".{whole.name}.forgetting")


def _finish_earlier(folder: Path) -> None:
    """Remove what a forgetting that was cut short has left; where it lost the folder's name, give it back."""
    left = _beside(folder)
    if left.exists() and not folder.exists():
        left.replace(folder)
    shutil.rmtree(left, ignore_errors=True)


def _write_without(model: ModelFolder, user: Hashable, path: Path) -> None:
    gone = model.ratings.user_code(user)
    made = ModelFolder.create(
        path,
        ratings=without_user(model.ratings, gone),
        priors=model.priors,
        schedule=model.schedule,
        moves=model.moves,
        seed=model.seed,
        preset=model.preset,
        items=model.items,
        heldout=None if model.heldout is None else without_user(model.heldout, gone),
    )
    posterior, points = model.posterior(), model.resume_points
    for trace in posterior.traces:
        draws = [draw for draw in posterior if draw.chain == trace.chain]
        made.append(*_chain_without(trace, draws, points[trace.chain], gone))
    made.write_card(card_text(made))
    drop_user(model.path, path, gone, (model.ratings.n_users, model.ratings.n_items))
    for file in model.path.iterdir():
        if file.is_file() and file.name not in _OURS and not file.name.endswith((ARRAYS, PARTIAL)):
            _link(file, path / file.name)


def without_user(ratings: Ratings, user: int) -> Ratings:
    """Return the ratings of everybody else, with the same items and levels."""
    users, items, levels = ratings.triples()
    kept = users != user
    codes = users[kept].astype(np.int64)
    others = [label for code, label in enumerate(ratings.users) if code != user]
    left = Ratings.from_codes(
        codes - (codes > user),
        items[kept],
        levels[kept],
        users=others,
        items=ratings.items,
        levels=ratings.levels,
        times=None if ratings.times is None else ratings.times[kept],
    )
    rows = np.delete(np.arange(ratings.n_users), user)
    return replace(left, covariates=ratings.covariates.of(rows, np.arange(ratings.n_items)))


def _chain_without(
    trace: Trace, draws: list[Draw], point: ResumePoint | None, user: int
) -> tuple[Trace, list[Draw], State | None]:
    """Return a chain without a user; the record of its sweeps counts the features that are left in what is kept."""
    left = [draw_without(draw, user) for draw in draws]
    n_features = trace.n_features.copy()
    for draw in left:
        n_features[draw.sweep - 1] = draw.n_features
    state = None if point is None else state_without(point.state, user)
    if state is not None:
        n_features[-1] = int(state.active.sum())
    return trace._replace(n_features=n_features), left, state


def draw_without(draw: Draw, user: int) -> Draw:
    """Return a draw without a user and without features that only this user had."""
    return draw_of(state_without(draw.to_state(), user), draw.chain, draw.sweep, draw.log_likelihood)


def state_without(state: State, user: int) -> State:
    """Return a state without a user; slots of features that only this user had become free."""
    slots = np.arange(state.active.size)
    user_members = np.delete(members(state.user_words, slots), user, axis=0)
    alive = user_members.any(axis=0)
    item_members = members(state.item_words, slots) & alive
    width = state.user_words.shape[1]
    return state._replace(
        user_words=words_of(user_members, width),
        item_words=words_of(item_members, width),
        active=(state.active.astype(bool) & alive).astype(np.uint8),
        item_effect=np.where(alive, state.item_effect, 0.0) if state.item_effect.shape[0] else state.item_effect,
        user_grade=_drop(state.user_grade, user) if state.user_grade.shape[0] else state.user_grade,
        user_offset=_drop(state.user_offset, user),
        user_scale=np.delete(state.user_scale, user),
        user_factor=_drop(state.user_factor, user),
    )


def _drop(table: NDArray[np.float64], user: int) -> NDArray[np.float64]:
    return np.delete(table, user, axis=0)


def _link(source: Path, target: Path) -> None:
    """Carry a file that is not ours over; linked, so that who has it open keeps it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _change_places(new: Path, old: Path) -> None:
    """Give two folders each other's names, in one step where the system can."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _EXCHANGE) == 0:
            return
    aside = new.with_name(new.name + PARTIAL)
    shutil.rmtree(aside, ignore_errors=True)
    old.replace(aside)
    new.replace(old)
    shutil.rmtree(aside)
