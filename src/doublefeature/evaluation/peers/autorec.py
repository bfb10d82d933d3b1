r"""AutoRec, an autoencoder over rating vectors, in a few lines of PyTorch.

A user's (or an item's) ratings r, less what offsets of users and items say or less the centre of those offsets alone,
with 0 where there is none, go through $h(r) = W\,\sigma(V r + \mu) + b$; the squared error of the ratings that exist,
plus λ/2 (‖W‖² + ‖V‖²), is minimised by Adam over large batches of rows, at a rate that falls to zero along half a
cosine.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doublefeature.evaluation.baselines import Offsets, fit_offsets
from doublefeature.evaluation.peers.base import Answer, Codes, Fitted, Peer, Rows, Settings, allowed_threads
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

_BLOCK = 512
Table = NDArray[np.float32]


def _fit(train: Ratings, settings: Settings, seed: int) -> Fitted:
    by_item = settings["side"] == "item"
    rows = Rows.of(train)
    down, across = (rows.items, rows.users) if by_item else (rows.users, rows.items)
    size = (train.n_items, train.n_users) if by_item else (train.n_users, train.n_items)
    offsets = fit_offsets(train, level_values(train.levels), with_users=True)
    if not settings["offsets"]:
        offsets = Offsets(offsets.centre, np.zeros(train.n_users), np.zeros(train.n_items))
    order = np.argsort(down, kind="stable")
    starts = np.searchsorted(down[order], np.arange(size[0] + 1))
    places = across[order]
    values = (rows.values - offsets.points(rows.users, rows.items))[order].astype(np.float32)

    def dense(chosen: Codes) -> tuple[Table, Table]:
        """Return ratings of some rows, and a mark where there is one."""
        table, marks = (np.zeros((chosen.size, size[1]), np.float32) for _ in range(2))
        for line, row in enumerate(chosen.tolist()):
            part = slice(starts[row], starts[row + 1])
            table[line, places[part]], marks[line, places[part]] = values[part], 1.0
        return table, marks

    decode = _train(dense, size, settings, seed)

    def answer(users: Codes, items: Codes) -> Answer:
        asked, columns = (items, users) if by_item else (users, items)
        out = np.empty(users.size)
        needed, lines = np.unique(asked, return_inverse=True)
        for first in range(0, needed.size, _BLOCK):
            mine = np.flatnonzero((lines >= first) & (lines < first + _BLOCK))
            out[mine] = decode(dense(needed[first : first + _BLOCK])[0])[lines[mine] - first, columns[mine]]
        return Answer(offsets.points(users, items) + out)

    return answer


def _train(dense: Any, size: tuple[int, int], settings: Settings, seed: int) -> Any:
    """Return what decodes a table of ratings into a table of predictions."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(allowed_threads())
    encoder = torch.nn.Linear(size[1], int(settings["hidden"]))
    decoder = torch.nn.Linear(int(settings["hidden"]), size[1])
    model = torch.nn.Sequential(encoder, torch.nn.Sigmoid(), decoder)
    steps = torch.optim.Adam(model.parameters())
    rng, batch = np.random.default_rng(seed), math.ceil(size[0] / int(settings["batches"]))
    epochs = int(settings["epochs"])
    for epoch in range(epochs):
        steps.param_groups[0]["lr"] = float(settings["rate"]) * 0.5 * (1.0 + math.cos(math.pi * epoch / epochs))
        order = rng.permutation(size[0])
        for first in range(0, size[0], batch):
            chosen = order[first : first + batch]
            table, marks = (torch.from_numpy(part) for part in dense(chosen))
            error = ((model(table) - table) ** 2 * marks).sum()
            weights = (encoder.weight**2).sum() + (decoder.weight**2).sum()
            loss = error + 0.5 * float(settings["penalty"]) * weights * chosen.size / size[0]
            steps.zero_grad()
            loss.backward()
            steps.step()

    def decode(table: Table) -> NDArray[np.float32]:
        with torch.no_grad():
            found: NDArray[np.float32] = model(torch.from_numpy(table)).numpy()
            return found

    return decode


def _import() -> None:
    import_module("torch")


AUTOREC = Peer(
    name="autorec",
    about="autoencoder over rating vectors (AutoRec, PyTorch)",
    package="torch",
    fit=_fit,
    defaults={
        "side": "item",
        "offsets": True,
        "hidden": 500,
        "penalty": 200.0,
        "rate": 2e-3,
        "epochs": 30,
        "batches": 8,
    },
    choices=({"side": "user"},),
    ladders={
        "penalty": (12.0, 25.0, 50.0, 100.0, 140.0, 200.0, 280.0, 400.0),
        "offsets": (False, True),
        "epochs": (15, 30, 60, 120, 240),
    },
    prepare=_import,
)
