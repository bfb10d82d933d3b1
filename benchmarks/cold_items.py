"""What columns of items are worth for items nobody has rated: the default model with and without genres and year.

    python benchmarks/cold_items.py [ml-1m] [--seeds 1] [--chains 2] [--sweeps 240]

Protocol `cold-items`: all ratings of a tenth of the films are held out. Both models see the same training ratings and
run the same schedule. Printed are the scores of both and their paired difference with its standard error, once by
drawing users again and once by drawing films, since ratings of one film go together too. Rules without a model come
beside them.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from doublefeature import DoubleFeature, Schedule, load_dataset, read_items, with_covariates
from doublefeature.evaluation.baselines import fit_baselines
from doublefeature.evaluation.bootstrap import Scores, paired_difference
from doublefeature.evaluation.predictors import ModelPredictor
from doublefeature.evaluation.scores import score_predictions
from doublefeature.evaluation.splits import make_splits
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Covariates

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TABLES = {"ml-1m": "movies.dat", "ml-latest-small": "movies.csv"}
COLUMNS = "genres,year"
SHOWN = ("log_score", "rps", "rmse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="ml-1m", choices=tuple(TABLES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--sweeps", type=int, default=240)
    parser.add_argument("--threads", type=int, default=None)
    told = parser.parse_args()
    os.environ.setdefault("DOUBLEFEATURE_DATA", str(SHARED))
    table = read_items(Path(os.environ["DOUBLEFEATURE_DATA"]) / told.data / TABLES[told.data])
    plan = Schedule(sweeps=told.sweeps, warmup=told.sweeps // 4, thin=6, chains=told.chains, threads=told.threads)
    known = with_covariates(load_dataset(told.data), items=table, item_covariates=COLUMNS, unrated=False)
    judged: dict[tuple[str, str], list[Scores]] = {}
    for seed in range(told.seeds):
        split = make_splits(known, "cold-items", seed=seed)[0]
        users, items, truth = (column.astype(np.int64) for column in split.test.triples())
        films = np.unique(items).size
        print(f"split {seed}: {len(split.train)} ratings, {len(split.test)} of {films} cold films judged", flush=True)
        answers = {one.name: one.predict(users, items) for one in fit_baselines(split.train)}
        trains = {"without": replace(split.train, covariates=Covariates()), "with": split.train}
        for name, train in trains.items():
            clock = time.perf_counter()
            model = DoubleFeature(schedule=plan, seed=seed).fit(train)
            print(f"  {name} {COLUMNS}: {time.perf_counter() - clock:.0f} s", flush=True)
            answers[name] = ModelPredictor(model).predict(users, items)
        values = level_values(known.levels)
        for method, (proba, mean) in answers.items():
            for by, codes in (("users", users), ("films", items)):
                found = score_predictions(proba, truth, codes, values, mean=mean)
                judged.setdefault((method, by), []).append(found)
    for (method, by), parts in judged.items():
        if by == "users":
            means = {name: np.mean([part[name].value for part in parts]) for name in SHOWN}
            print(f"{method:12}" + "".join(f"  {name} {value:.4f}" for name, value in means.items()))
    for by in ("users", "films"):
        for name in SHOWN:
            gap = paired_difference(judged["with", by], judged["without", by], name)
            print(f"with less without, {name}: {gap.value:+.4f} ± {gap.error:.4f} (drawing {by})")


if __name__ == "__main__":
    main()
