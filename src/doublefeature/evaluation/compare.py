"""Several models on the same splits: all scores, paired differences, time and memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from doublefeature.errors import EnvironmentProblem, SettingsError, show
from doublefeature.evaluation.bootstrap import RESAMPLES, Scores
from doublefeature.evaluation.evaluate import GIVEN, TOP_N, SplitFacts, judge_predicted
from doublefeature.evaluation.peers.base import Peer, Settings
from doublefeature.evaluation.peers.cells import Cell, Shelf, cell_key
from doublefeature.evaluation.peers.comparison import Comparison
from doublefeature.evaluation.peers.registry import ALL, OWN, find_models
from doublefeature.evaluation.peers.runner import Plan, run_peer
from doublefeature.evaluation.peers.tuning import Search
from doublefeature.evaluation.ranking import listed_users, relevant_level
from doublefeature.evaluation.splits import Split, splits_of
from doublefeature.evaluation.tables import how_lists_are_judged
from doublefeature.ratings import Ratings

Say = Callable[[str], None]
__all__ = ["MOST_LIST_PAIRS", "Comparison", "compare"]

MOST_LIST_PAIRS = 20_000_000
"""Top-n lists are left out where more pairs than this would have to be predicted."""


def compare(
    ratings: Ratings | Sequence[Split],
    models: Iterable[str] = (ALL,),
    *,
    protocol: str = "holdout",
    seeds: Sequence[int] = (0,),
    share: float | None = None,
    folds: int = 5,
    given: int = GIVEN,
    settings: Mapping[str, Settings] | None = None,
    plan: Plan | None = None,
    top_n: int | None = TOP_N,
    resamples: int = RESAMPLES,
    out: str | os.PathLike[str] | None = None,
    say: Say | None = None,
) -> Comparison:
    """Run models on the same splits, each tuned within the training part, and judge them on the rest.

    Parameters
    ----------
    ratings
        Ratings, split by `protocol`, `seeds`, `share`, `folds` and `given` (`make_splits`); or finished splits of one
        protocol. What is given of cold users every model learns from, since most could not take it in afterwards.
    models
        Names of models and groups (`doublefeature.evaluation.peers.registry`).
    settings
        By name of the model, settings in place of its defaults; they are not tuned then.
    plan
        How fits run.
    top_n
        Length of the lists that are judged over the whole catalogue; None leaves that out.
    out
        Folder of finished runs; those found there are not run again.
    say
        Is told in words what goes on.
    """
    peers, missing = find_models(models)
    plan, tell = plan or Plan(), say or _silent
    searches = _searches(peers, settings or {}, plan)
    splits = _splits(ratings, protocol, seeds, share, folds, given)
    left_out = {peer.name: f"package {peer.package} is not installed" for peer in missing}
    for name, why in left_out.items():
        tell(f"{name} is skipped: {why}. Run: pip install 'doublefeature[peers]'")
    shelf, too_long = Shelf(None if out is None else Path(out)), _list_notes(splits, top_n)
    length = None if too_long else top_n
    cells: dict[str, list[Cell]] = {}
    for peer in peers:
        try:
            cells[peer.name] = [_cell(peer, split, searches[peer.name], plan, length, shelf, tell) for split in splits]
        except EnvironmentProblem as error:
            left_out[peer.name] = str(error)
            tell(f"{peer.name} is left out: {error}")
    if not cells:
        raise EnvironmentProblem(f"no model could be run. {next(iter(left_out.values()), '')}")
    return Comparison(
        protocol=splits[0].protocol,
        splits=[SplitFacts.of(split) for split in splits],
        scores={
            name: [_judge(*pair, resamples) for pair in zip(splits, row, strict=True)] for name, row in cells.items()
        },
        cells=cells,
        reference=next((name for name in cells if name.startswith(OWN)), next(iter(cells))),
        left_out=left_out,
        notes=[*too_long, *_lists_judged(splits[0], cells), *_at_ends(searches, cells)],
    )


def _silent(text: str) -> None:
    pass


def _splits(
    ratings: Ratings | Sequence[Split], protocol: str, seeds: Sequence[int], share: float | None, folds: int, given: int
) -> list[Split]:
    if not isinstance(ratings, Ratings):
        if not ratings:
            raise SettingsError("at least one split is needed.")
        return list(ratings)
    return splits_of(ratings, protocol, seeds, share, folds, given)


def _searches(peers: Sequence[Peer], given: Mapping[str, Settings], plan: Plan) -> dict[str, Search]:
    """Return, for every model, what tuning chooses from: one thing where nothing is to be tuned."""
    names = [peer.name for peer in peers]
    for name in given:
        if name not in names:
            raise SettingsError(f"settings are given for {show(name)}, which is not compared. Compared are: {names}.")

    def search(peer: Peer) -> Search:
        if plan.tune and peer.name not in given:
            return Search.of(peer)
        return Search([peer.complete(given.get(peer.name, {}))])

    return {peer.name: search(peer) for peer in peers}


def _list_notes(splits: Sequence[Split], top_n: int | None) -> list[str]:
    if top_n is None:
        return []
    n_pairs = max(listed_users(split).size * split.train.n_items for split in splits)
    if n_pairs <= MOST_LIST_PAIRS:
        return []
    return [
        f"top-{top_n} lists are left out: {n_pairs} pairs would have to be predicted, {MOST_LIST_PAIRS} are allowed"
    ]


def _lists_judged(split: Split, cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    if not any(cell.lists for row in cells.values() for cell in row):
        return []
    return [how_lists_are_judged(split.test.levels[relevant_level(split.test.n_levels)])]


def _at_ends(searches: Mapping[str, Search], cells: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Say which settings were chosen at the end of what tuning goes through."""
    found = {
        name: ", ".join(dict.fromkeys(end for cell in row for end in searches[name].ends(cell.settings)))
        for name, row in cells.items()
    }
    told = "; ".join(f"{name} {ends}" for name, ends in found.items() if ends)
    return [f"chosen at the end of what was tried: {told}"] if told else []


def _cell(peer: Peer, split: Split, search: Search, plan: Plan, top_n: int | None, shelf: Shelf, tell: Say) -> Cell:
    """Return the finished run of a model on a split, from the folder or made now."""
    search = replace(search, starts=[peer.settle(split.known, settings) for settings in search.starts])
    key = cell_key(split, peer, search, top_n)
    found = shelf.load(key, peer.name)
    if found is not None:
        return found
    listed = None if top_n is None else listed_users(split)
    outcome = run_peer(peer, split, search, plan, listed=listed, say=tell)
    cell = Cell.of(outcome, split, listed, top_n or 0)
    shelf.keep(key, peer.name, cell)
    return cell


def _judge(split: Split, cell: Cell, resamples: int) -> Scores:
    """Return all scores of a finished run."""
    found = judge_predicted(split, cell.predicted, resamples=resamples)
    lists = cell.list_scores(split.test.n_ratings, resamples)
    return found if lists is None else found | lists
