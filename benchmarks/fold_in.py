"""Fold-in against a refit, and how long it takes.

    python benchmarks/fold_in.py accuracy simulated
    python benchmarks/fold_in.py accuracy ml-100k [--users 100 --sweeps 100 --chains 2]
    python benchmarks/fold_in.py speed [MODEL]

accuracy: some users with ten ratings or more are kept out of a first fit and folded in with all but a part of their
ratings; a second fit learns from what was folded in as well. Both are judged on the part: log score, with the standard
error of the paired difference over users. Beside them: fold-in that ignores what the choice of items tells, and the
prior's answer.

speed: CPU time of folding in 50 ratings against 200 draws of the size of MovieLens-1M's top 200 items, or of a model.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from doublefeature import DoubleFeature, Ratings, Schedule, load, load_dataset, preset
from doublefeature.evaluation.predictors import FoldingPredictor, ModelPredictor
from doublefeature.evaluation.splits import Split
from doublefeature.inference.folding import FoldBase, NewRow
from doublefeature.model.ordinal import level_cutpoints
from doublefeature.model.state import SCALES, words_of
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.studies.recovery import Design, simulate

BAR = 0.02
LEAST, MOST_JUDGED = 10, 10


def split_users(ratings: Ratings, n_users: int, seed: int) -> Split:
    """Keep users with enough ratings out of the fit: a third of theirs, ten at most, are judged, the rest given."""
    rng = np.random.default_rng(seed)
    counts = np.diff(ratings.arrays.user_ptr)
    judged = np.minimum(counts // 3, MOST_JUDGED)
    able = np.flatnonzero(counts - judged >= LEAST)
    cold = np.zeros(ratings.n_users, bool)
    cold[rng.permutation(able)[:n_users]] = True
    users = ratings.triples()[0].astype(np.int64)
    test = np.zeros(ratings.n_ratings, bool)
    for user in np.flatnonzero(cold).tolist():
        part = np.arange(*ratings.arrays.user_ptr[user : user + 2])
        test[rng.permutation(part)[: judged[user]]] = True
    return Split(
        "cold-users", seed, ratings.subset(~cold[users]), ratings.subset(test), ratings.subset(cold[users] & ~test)
    )


def log_scores(split: Split, predict: Callable[..., tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    users, items, levels = (column.astype(np.int64) for column in split.test.triples())
    proba = predict(users, items)[0]
    return np.log(np.maximum(proba[np.arange(levels.size), levels], 1e-12))


def accuracy(name: str, n_users: int, schedule: Schedule, seed: int) -> None:
    model_name = "paper" if name == "simulated" else "full"
    ratings = data_of(name)
    split = split_users(ratings, n_users, seed)
    sizes = f"{split.train.n_ratings} ratings fitted, {split.given.n_ratings} folded in, {split.test.n_ratings} judged"
    print(f"{name}, preset {model_name}: {sizes}; {schedule}", flush=True)
    model = DoubleFeature(preset=model_name, seed=1, schedule=schedule)
    first = model.fit(split.train)
    scores = {"fold-in": log_scores(split, FoldingPredictor(first, split.given).predict)}
    scores["prior"] = log_scores(split, lambda users, items: ModelPredictor(first).predict(0 * users - 1, items))
    if first.priors_.choices:
        blind = FoldBase(first.posterior_, first.ratings_, first.priors_, first.seed, choices=False)
        first.__dict__["fold_base_"] = blind
        scores["fold-in without choices"] = log_scores(split, FoldingPredictor(first, split.given).predict)
    for refit_seed in (1, 2):
        again = DoubleFeature(preset=model_name, seed=refit_seed, schedule=schedule).fit(split.known)
        scores[f"refit, seed {refit_seed}"] = log_scores(split, ModelPredictor(again).predict)
    report(split, scores)


def report(split: Split, scores: dict[str, np.ndarray]) -> None:
    users = split.test.triples()[0].astype(np.int64)
    refit = scores["refit, seed 1"]
    print(f"{'':28}{'log score':>11}{'less refit':>20}")
    for name, score in scores.items():
        gap = score - refit
        by_user = np.bincount(users, gap)[np.unique(users)]
        error = by_user.std() * by_user.size**0.5 / gap.size
        print(f"{name:28}{score.mean():11.4f}{f'{gap.mean():+.4f} ± {error:.4f}':>20}")
    gap = float(np.mean(scores["fold-in"] - refit))
    print(f"fold-in is {-gap:+.4f} below the refit; bar {BAR}: {'kept' if gap > -BAR else 'MISSED'}", flush=True)


def data_of(name: str) -> Ratings:
    if name == "simulated":
        return simulate(Design(users=200, items=60, tau=0.5), seed=5)[0].split(0.5, seed=1)[0]
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(shared))
    return load_dataset(name)


def made_up(n_users: int = 6040, n_items: int = 200, n_features: int = 50, n_draws: int = 200) -> FoldBase:
    """Return draws of the size of MovieLens-1M's top 200 items under preset full, and ratings to go with them."""
    rng = np.random.default_rng(0)
    draws = []
    for sweep in range(n_draws):
        users, items = rng.random((n_users, n_features)) < 0.2, rng.random((n_items, n_features)) < 0.25
        draws.append(
            Draw(
                chain=0,
                sweep=sweep,
                log_likelihood=0.0,
                user_words=words_of(users, 1),
                item_words=words_of(items, 1),
                effect=rng.normal(0.0, 0.3, n_features),
                item_rate=np.full(n_features, 0.25),
                item_offset=rng.normal(0.8, 0.5, n_items),
                user_offset=rng.normal(0.0, 0.4, n_users),
                user_scale=rng.integers(0, SCALES.size, n_users).astype(np.uint8),
                cutpoints=level_cutpoints(5),
                hyper=np.array([0.8, 5.0, 0.2, 0.3, 0.7, 0.4, 0.4, 0.3, 0.5, 0.3]),
                item_effect=rng.normal(0.0, 0.5, int(items.sum())),
                graded=True,
                user_grade=rng.normal(1.0, 0.5, int(users.sum())),
                user_graded=True,
            )
        )
    rated = np.sort(np.argsort(rng.random((n_users, n_items)), axis=1)[:, :44], axis=1)
    codes = np.repeat(np.arange(n_users), 44), rated.ravel(), rng.integers(0, 5, 44 * n_users)
    ratings = Ratings.from_codes(
        codes[0].astype(np.uint32),
        codes[1].astype(np.uint32),
        codes[2].astype(np.uint8),
        users=range(n_users),
        items=range(n_items),
        levels=range(1, 6),
    )
    return FoldBase(Posterior(2.5, draws, scales=SCALES.copy()), ratings, preset("full"), 0)


def speed(folder: str | None) -> None:
    base = made_up() if folder is None else load(folder).fold_base_
    n_items = base.posterior.draws[0].item_offset.size
    rng = np.random.default_rng(1)
    row = NewRow(np.sort(rng.permutation(n_items)[:50]), np.minimum(rng.binomial(4, 0.65, 50), 4))
    clock = time.process_time()
    base.prepare()
    print(f"prepared in {time.process_time() - clock:.1f} s of CPU time, once for a model", flush=True)
    base.fold_user(row)
    times = []
    for _ in range(20):
        clock = time.process_time()
        base.fold_user(row)
        times.append(1e3 * (time.process_time() - clock))
    features = base.posterior.n_features.mean()
    print(
        f"50 ratings, {len(base.posterior)} draws, {features:.0f} features: median {np.median(times):.0f} ms, "
        f"least {min(times):.0f} ms of CPU time",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "speed"))
    parser.add_argument("on", nargs="?", help="simulated or a data set; of speed: a model folder")
    parser.add_argument("--users", type=int, default=100, help="how many are folded in")
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    if told.what == "speed":
        speed(told.on)
        return
    schedule = Schedule(sweeps=told.sweeps, warmup=told.sweeps // 2, thin=2, chains=told.chains, threads=told.threads)
    accuracy(told.on or "ml-100k", told.users, schedule, told.seed)


if __name__ == "__main__":
    main()
