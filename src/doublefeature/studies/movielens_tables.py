"""The MovieLens study in tables: CSV and Markdown, each number beside the paper's."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from doublefeature.evaluation.bootstrap import Scores, paired_difference
from doublefeature.studies.movielens import AUTHORS, OURS, Study
from doublefeature.studies.movielens_data import FEATURES, MALLOWS, PAIRS, PAIRS_SD, TOP, WITHIN_ONE
from doublefeature.studies.movielens_scores import (
    BEFORE,
    NAMES,
    SHOWN,
    ShardScore,
    all_scores,
    judge,
    shard_scores,
    summary_of,
)

Rows = list[dict[str, Any]]

N_TOP = 10
_SHARES = ("exact", "within_one", "pairs_authors", "pairs_strict", "pairs_auc")
_DIFFERENCES = ("log_score", "rps", "rmse", "within_one", "pairs_authors", "pairs_strict", "pairs_auc")


def table_files(study: Study) -> dict[str, str]:
    """Return every table under its file name, as CSV, and the page of all of them, `summary.md`."""
    scores, shards = all_scores(study), shard_scores(study)
    tables: dict[str, Rows] = {
        "users": [count._asdict() for count in study.counts],
        "scores": score_rows(study, scores),
        "shards": [row._asdict() for row in shards],
        "differences": difference_rows(scores),
        "top": top_rows(study),
        "cost": cost_rows(study),
        "offsets": offset_rows(study),
    }
    files = {f"{name}.csv": _csv(rows) for name, rows in tables.items()}
    return {**files, "summary.md": _page(study, tables, shards)}


def score_rows(study: Study, scores: Mapping[str, Sequence[Scores]]) -> Rows:
    """Return one row per method: the mean over seeds of every score, its standard error, and the paper's number."""
    rows = []
    for method, parts in scores.items():
        row: dict[str, Any] = {"method": method, "seeds": len(parts)}
        for name, estimate in summary_of(list(parts)).items():
            row[name], row[f"{name}_error"] = estimate
        rows.append(row)
    paper = {"method": "paper (as printed)", "within_one": WITHIN_ONE, "pairs_authors": PAIRS}
    return [*rows, paper, {"method": "Mallows (as the paper quotes it)", "pairs_authors": MALLOWS}]


def difference_rows(scores: Mapping[str, Sequence[Scores]]) -> Rows:
    """Return how far other runs are above the consensus, paired, with standard errors."""
    base = list(scores[NAMES["consensus"]])
    rows = []
    for method in (BEFORE, *list(NAMES.values())[1:]):
        for name in _DIFFERENCES:
            value, error = paired_difference(list(scores[method]), base, name)
            rows.append({"method": method, "minus": NAMES["consensus"], "score": name, "value": value, "error": error})
    return rows


def top_rows(study: Study) -> Rows:
    """Return the leading films of the first seed by merged ρ and by posterior mean rating, beside the paper's."""
    run, exact = study.runs["consensus"][0], study.runs["exact paper"][0]
    columns = {
        "by_offset": run["offset_mean"],
        "by_offset_authors": study.runs["authors"][0]["offset_mean"],
        "by_rating": run["rating_mean"],
        "by_rating_exact": exact["rating_mean"],
    }
    orders = {name: np.argsort(-values, kind="stable")[:N_TOP].tolist() for name, values in columns.items()}
    rows = []
    for place in range(min(N_TOP, run["offset_mean"].size)):
        row: dict[str, Any] = {"rank": place + 1, "paper": TOP[place]}
        for name, order in orders.items():
            row[name] = study.title(order[place])
            row[f"{name}_value"] = float(columns[name][order[place]])
        rows.append(row)
    return rows


def cost_rows(study: Study) -> Rows:
    """Return what each number of shards costs, what standard errors it leaves, and what it predicts; first seed."""
    split, plan = study.splits[0], study.schedule
    rows = []
    for size, run in study.by_shards.items():
        first, second = run["seconds"]
        found = judge(run["proba"], split)
        rows.append(
            {
                "shards": size,
                "users_per_shard": round(split.train.n_users / size),
                "cpu_seconds_first_stage": float(first.sum()),
                "cpu_seconds_second_stage": float(second.sum()),
                "cpu_seconds_longest_shard": float((first + second).max()),
                "cpu_seconds_per_sweep_and_shard": float(first.mean() / (plan.n_sweeps * plan.chains)),
                "effect_error_median": float(np.median(run["effect_errors"])) if run["effect_errors"].size else None,
                "offset_sd_mean": float(run["offset_sd"].mean()),
                "features_per_shard": float(run["features"][:, 0].mean()),
                "disagreement_median": float(np.median(run["disagreement"])),
                "hit_rate": float(run["hit_rate"].mean()),
                **{name: found[name].value for name in SHOWN},
            }
        )
    return rows


def offset_rows(study: Study) -> Rows:
    """Return every film's merged ρ and mean rating on the first seed, and how far shards disagree about it."""
    run, exact = study.runs["consensus"][0], study.runs["exact paper"][0]
    names = ("offset_mean", "offset_sd", "disagreement", "rating_mean")
    return [
        {
            "item": study.title(code),
            **{name: float(run[name][code]) for name in names},
            "exact_offset_mean": float(exact["offset_mean"][code]),
            "exact_offset_sd": float(exact["offset_sd"][code]),
            "exact_rating_mean": float(exact["rating_mean"][code]),
        }
        for code in range(run["offset_mean"].size)
    ]


def _page(study: Study, tables: Mapping[str, Rows], shards: Sequence[ShardScore]) -> str:
    seeds = ", ".join(str(split.seed) for split in study.splits)
    plan, split = study.schedule, study.splits[0]
    before, after = (np.array([getattr(row, f"pairs_{when}") for row in shards]) for when in ("before", "after"))
    within = np.array([row.within_one for row in shards])
    features = np.array([row.features for row in shards])
    hits = [float(run["hit_rate"].mean()) for run in study.runs["authors"]]
    parts = [
        "# MovieLens-1M, section 6 of the paper\n",
        f"{split.train.n_users} users, {split.train.n_items} films, {split.train.n_ratings} training ratings, one "
        f"held-out rating per user. Seeds {seeds}; {plan.chains} chains of {plan.n_sweeps} sweeps ({plan.warmup} "
        f"warm-up, every {plan.thin}th kept), from no features. {study.shards} shards; merge and second stage "
        f"`{OURS[0]}`, `{OURS[1]}`, and as the authors ran it `{AUTHORS[0]}`, `{AUTHORS[1]}`.\n",
        "## Users\n",
        _markdown(tables["users"], ("rule", "users", "ratings")),
        "The paper writes of 6040 users, all there are in MovieLens-1M.\n",
        "## Every method beside the paper\n",
        _markdown(tables["scores"], ("method", *SHOWN), shares=_SHARES),
        "Means over seeds. log score, and shares (in %): higher is better; RPS, RMSE: lower. within_one takes the best "
        "window, pairs_authors counts ties as “not preferred”. Standard errors are in `scores.csv`.\n",
        "## Shards before and after the merge\n",
        _markdown(_shard_facts(before, after, within, features), ("quantity", "here", "paper")),
        f"The literal rule |ρ − ρ̃| < 0.1 for every film keeps {np.mean(hits):.2%} of the stored draws; so the nearest "
        "half is kept where the authors' second stage is asked for.\n",
        "![pairs by shard](figures/pairs_by_shard.png)\n",
        "![within one level by shard](figures/within_one_by_shard.png)\n",
        "## Exact against consensus\n",
        _markdown(tables["differences"], ("method", "score", "value", "error"), digits=4),
        f"Each less “{NAMES['consensus']}”, paired over users.\n",
        "## Films\n",
        _markdown(tables["top"], ("rank", "by_offset", "by_rating", "by_rating_exact", "paper")),
        "`by_offset`: merged ρ, as in the paper's table; `by_rating`: posterior mean rating over all users.\n",
        "## Cost and standard error against the number of shards\n",
        _markdown(tables["cost"], _COST, digits=4),
        "First seed, CPU seconds. The paper argues O(S (m/S)³) a sweep. Here a sweep is linear in the ratings, so that "
        "shards divide the work and save none of it; below 1,000 users a shard gets more tries of births (`Moves`), "
        "which cost more. Effect errors: posterior sd of θ given memberships, ρ integrated out, over features of two "
        "users or more.\n",
        "![cost](figures/cost.png)\n",
        "## Users and one shard\n",
        "![three users](figures/three_users.png)\n",
        "![scores against ratings](figures/scores_and_ratings.png)\n",
        "![features](figures/features.png)\n",
    ]
    return "\n".join(parts)


_COST = (
    "shards",
    "cpu_seconds_first_stage",
    "cpu_seconds_second_stage",
    "cpu_seconds_longest_shard",
    "cpu_seconds_per_sweep_and_shard",
    "effect_error_median",
    "offset_sd_mean",
    "features_per_shard",
    "log_score",
    "rmse",
    "within_one",
    "pairs_authors",
)


def _shard_facts(before: Any, after: Any, within: Any, features: Any) -> Rows:
    def told(values: Any) -> str:
        spread = f", sd {values.std(ddof=1):.3f}" if values.size > 1 else ""
        return f"{values.mean():.1%}{spread}"

    return [
        {"quantity": "pairs by the authors' rule, before", "here": told(before), "paper": "below the next"},
        {"quantity": "pairs by the authors' rule, after", "here": told(after), "paper": f"{PAIRS:.1%}, sd {PAIRS_SD}"},
        {"quantity": "within one level, after", "here": told(within), "paper": f"{WITHIN_ONE:.1%}"},
        {
            "quantity": "features per shard",
            "here": f"{features.min():.0f} to {features.max():.0f}",
            "paper": f"{FEATURES[0]} to {FEATURES[1]}",
        },
    ]


def _csv(rows: Rows) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    table = csv.DictWriter(out, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


def _markdown(rows: Rows, names: Sequence[str], *, digits: int = 3, shares: Iterable[str] = ()) -> str:
    shown = set(shares)

    def cell(name: str, value: Any) -> str:
        if value is None:
            return ""
        if not isinstance(value, float):
            return str(value)
        return f"{100 * value:.1f}" if name in shown else f"{value:.{digits}g}" if digits > 3 else f"{value:.{digits}f}"

    head = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    body = [f"| {' | '.join(cell(name, row.get(name)) for name in names)} |" for row in rows]
    return "\n".join([*head, *body]) + "\n"
