"""Diagnose a run: have the chains settled, do they agree, and what would help?

Levels of the verdict, from predictive means of random pairs (the probes) and the noise scale:

* `good`: two chains or more; for the noise scale and 19 in 20 probes R-hat is below 1.05 and the effective number of
  draws is 100 or more.
* `usable`: not so, but the simulation error of 9 in 10 probes is at most a tenth of the distance between levels.
  Chains that stay in different modes count in that error, one draw each.
* `run longer`: neither; or fewer than 8 draws per chain; or the log-likelihood still rises.

K and the log-likelihood are shown but decide nothing: several sets of features can explain the same ratings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from doublefeature.errors import show
from doublefeature.model.state import NOISE
from doublefeature.posterior.convergence import LEAST_DRAWS, LEAST_ESS, MOST_RHAT, Quantity, check_fits, follow
from doublefeature.posterior.draws import Draw, Posterior, Trace
from doublefeature.posterior.prediction import level_values
from doublefeature.ratings import Ratings

MOST_ERROR = 0.1
"""Largest simulation error of a usable prediction, as a share of the distance between levels."""
ADVISED_DRAWS = 50
ADVISED_CHAINS = 4
_HEADER = ["quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail", "MCSE"]


class ChainSummary(NamedTuple):
    """One chain's means, and how far its log-likelihood rose from its first half to its second."""

    chain: int
    draws: int
    log_likelihood: float
    n_features: float
    noise_scale: float
    rise: float  # in standard deviations within a half


class MoveSummary(NamedTuple):
    """How often a move was tried and accepted, in all and in each chain."""

    move: str
    tries: int
    accepted: int
    share: float | None  # of tries accepted; None without tries
    chains: list[int]
    chain_tries: list[int]
    chain_accepted: list[int]


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a run's convergence.

    Attributes
    ----------
    quantities
        Log-likelihood, K, noise scale, and the hyperparameters that vary.
    probes
        Predictive means of random (user, item) pairs.
    chains, moves
        Each chain's means; acceptance of each move.
    level_step
        Mean distance between neighbouring levels, the unit of simulation errors.
    thin, last_sweep
        Sweeps between two draws, and sweeps behind the last one.
    """

    quantities: list[Quantity]
    probes: list[Quantity]
    chains: list[ChainSummary]
    moves: list[MoveSummary]
    level_step: float
    thin: int
    last_sweep: int

    @property
    def level(self) -> str:
        """One of good, usable and run longer; the rules are in the module's docstring."""
        if self.too_short or self.rising:
            return "run longer"
        if self.settled and len(self.chains) > 1:
            return "good"
        return "usable" if self.error <= MOST_ERROR else "run longer"

    @property
    def draws_per_chain(self) -> int:
        """Draws of the shortest chain, to which all are cut."""
        return min(chain.draws for chain in self.chains)

    @property
    def too_short(self) -> bool:
        """Whether there are too few draws to compare chains."""
        return self.draws_per_chain < LEAST_DRAWS

    @property
    def rising(self) -> bool:
        """Whether the log-likelihood still rises: by over one standard deviation in the median chain."""
        return not self.too_short and float(np.median([chain.rise for chain in self.chains])) > 1.0

    @property
    def settled(self) -> bool:
        """Whether the noise scale and 19 in 20 probes are settled."""
        return self.noise.settled and sum(probe.settled for probe in self.probes) >= 0.95 * len(self.probes)

    @property
    def error(self) -> float:
        """Simulation error that 9 in 10 probes stay below, as a share of the distance between levels."""
        return float(np.quantile([probe.found.mcse for probe in self.probes], 0.9)) / self.level_step

    @property
    def least_ess(self) -> float:
        """Effective number of draws: of the noise scale, or the 5 % quantile of the probes' if that is less."""
        varying = [probe.found.ess_bulk for probe in self.probes if probe.found.sd > 0.0] or [math.inf]
        noise = self.noise.found.ess_bulk if self.noise.found.sd > 0.0 else math.inf
        return min(noise, float(np.quantile(varying, 0.05)))

    @property
    def noise(self) -> Quantity:
        """The noise scale among the quantities."""
        return next(quantity for quantity in self.quantities if quantity.name == "noise_scale")

    def reasons(self) -> list[str]:
        """Return why the verdict is what it is, in plain sentences."""
        if self.too_short:
            return [f"Only {self.draws_per_chain} draw(s) per chain: too few to compare ({LEAST_DRAWS} are needed)."]
        told = []
        if max(chain.draws for chain in self.chains) > self.draws_per_chain:
            told.append(f"Chains differ in length: only the first {self.draws_per_chain} draws of each are compared.")
        if self.rising:
            told.append("The log-likelihood still rises: the chains have not settled, and the warm-up was too short.")
        told.append(self._on_predictions())
        told.append(f"Simulation error of predicted ratings: at most {self.error:.2f} of a level for 9 in 10 pairs.")
        if len(self.chains) > 1:
            told += [sentence for sentence in (self._on_noise(), self._on_features()) if sentence]
        return told

    def _on_predictions(self) -> str:
        varying = [probe.found.rhat for probe in self.probes if probe.found.sd > 0.0]
        worst = f"largest R-hat {max(varying, default=1.0):.2f}"
        apart = sum(rhat >= MOST_RHAT for rhat in varying)
        if len(self.chains) == 1:
            return f"One chain only ({worst}, between its halves): whether it misses other modes cannot be seen."
        if apart > 0.05 * len(self.probes):
            return (
                f"The chains disagree on {apart} of {len(self.probes)} predictions ({worst}): they are slow to mix, "
                "or sit in different modes, each a way to explain the ratings."
            )
        return f"The chains agree on predictions ({worst})."

    def _on_noise(self) -> str:
        found = self.noise.found
        if self.noise.settled:
            return ""
        return f"The noise scale is not settled (R-hat {found.rhat:.2f}, {found.ess_bulk:.0f} effective draws)."

    def _on_features(self) -> str:
        names = {"K": "K", "log_likelihood": "log-likelihood"}
        apart = [one for one in self.quantities if one.name in names and one.found.rhat >= MOST_RHAT]
        told = " and ".join(f"{names[one.name]} (R-hat {one.found.rhat:.2f})" for one in reversed(apart))
        return f"Chains differ in {told}, which is common: features are not unique." if told else ""

    def advice(self) -> list[str]:
        """Return what would help, in plain sentences."""
        kept, chains = self.draws_per_chain * self.thin, len(self.chains)
        told = []
        if self.too_short:
            missing = (ADVISED_DRAWS - self.draws_per_chain) * self.thin
            told.append(f"Run about {_round_up(missing)} more sweeps per chain, for {ADVISED_DRAWS} draws of each.")
        elif self.rising:
            told.append(f"Run about {_round_up(2 * self.last_sweep)} sweeps per chain, half of them as warm-up.")
        elif not self.settled and (chains == 1 or self.draws_per_chain < ADVISED_DRAWS or self.least_ess >= 20.0):
            more = kept * min(max(LEAST_ESS / self.least_ess - 1.0, 1.0), 10.0)
            now = f"{self.least_ess:.0f} effective draws now, {LEAST_ESS:.0f} or more wanted"
            told.append(f"Run about {_round_up(more)} more sweeps per chain ({now}).")
        elif not self.settled:
            wanted = max(2 * chains, math.ceil(chains * (self.error / MOST_ERROR) ** 2))
            told.append(f"More chains help more than longer ones, as predictions average over them: run {wanted}.")
        if chains == 1:
            told.append(f"Run {ADVISED_CHAINS} chains.")
        return told or ["No more sweeps are needed."]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "level": self.level,
            "reasons": self.reasons(),
            "advice": self.advice(),
            "draws_per_chain": self.draws_per_chain,
            "quantities": [quantity.to_dict() for quantity in self.quantities],
            "predictions": [probe.to_dict() for probe in self.probes],
            "chains": [chain._asdict() for chain in self.chains],
            "moves": [move._asdict() for move in self.moves],
        }

    def lines(self) -> list[str]:
        """Return the verdict and three tables as plain text; of the probes, the median and the worst."""
        told = [f"Verdict: {self.level}", *self.reasons(), *self.advice(), ""]
        told += _table([_HEADER, *map(_row, self.quantities), *self._probe_rows()])
        told += ["R-hat near 1: chains cannot be told apart. ESS: effective number of draws. MCSE: simulation error."]
        heads = ["chain", "draws", "log-likelihood", "K", "noise scale"]
        rows = [[str(c), str(n), f"{ll:.1f}", f"{k:.1f}", f"{tau:.3f}"] for c, n, ll, k, tau, _ in self.chains]
        told += ["", *_table([heads, *rows])]
        if self.moves:
            names = ["move", "tries", "accepted", "share", *(f"chain {chain}" for chain in self.moves[0].chains)]
            told += ["", *_table([names, *map(_move_row, self.moves)])]
        return told

    def _probe_rows(self) -> list[list[str]]:
        ranked = sorted(self.probes, key=lambda probe: probe.found.rhat if probe.found.rhat > 0.0 else 0.0)
        middle, worst = ranked[(len(ranked) - 1) // 2], ranked[-1]
        place = "" if worst.pair is None else f": {show(worst.pair[0])}, {show(worst.pair[1])}"
        return [
            ["median prediction", *_row(middle)[1:]],
            [f"worst of {len(ranked)}{place}", *_row(worst)[1:]],
        ]


def diagnose(posterior: Posterior, ratings: Ratings, *, n_probes: int = 50, seed: int = 0) -> Diagnosis:
    """Judge the chains by label-free quantities, and say in plain words whether to trust them.

    Parameters
    ----------
    posterior, ratings
        The draws, and the ratings they were made from.
    n_probes, seed
        How many (user, item) pairs are followed, and the seed that draws them.
    """
    check_fits(posterior, ratings)
    quantities, probes = follow(posterior, ratings, n_probes, seed)
    sweeps = [draw.sweep for draw in posterior.chains[0]]
    return Diagnosis(
        quantities=quantities,
        probes=probes,
        chains=[_summarise(chain) for chain in posterior.chains],
        moves=_count_moves(posterior.traces),
        level_step=float(np.abs(np.diff(level_values(ratings.levels))).mean()),
        thin=sweeps[1] - sweeps[0] if len(sweeps) > 1 else 1,
        last_sweep=max(draw.sweep for draw in posterior),
    )


def _summarise(draws: Sequence[Draw]) -> ChainSummary:
    likelihood = np.array([draw.log_likelihood for draw in draws])
    half = len(draws) // 2
    first, second = likelihood[:half], likelihood[-half:]
    spread = math.sqrt((first.var() + second.var()) / 2.0) if half else 0.0
    return ChainSummary(
        chain=draws[0].chain,
        draws=len(draws),
        log_likelihood=float(likelihood.mean()),
        n_features=float(np.mean([draw.n_features for draw in draws])),
        noise_scale=float(np.mean([draw.hyper[NOISE] for draw in draws])),
        rise=float(second.mean() - first.mean()) / spread if spread > 0.0 else 0.0,
    )


def _count_moves(traces: Sequence[Trace]) -> list[MoveSummary]:
    names = traces[0].move_names if traces else ()
    found = []
    for place, name in enumerate(names):
        tries = [int(trace.tally[place, 0]) for trace in traces]
        accepted = [int(trace.tally[place, 1]) for trace in traces]
        share = sum(accepted) / sum(tries) if sum(tries) else None
        chains = [trace.chain for trace in traces]
        found.append(MoveSummary(name, sum(tries), sum(accepted), share, chains, tries, accepted))
    return found


def _round_up(number: float) -> int:
    """Round up to two significant digits."""
    unit = int(10 ** max(0, math.floor(math.log10(max(number, 1.0))) - 1))
    return math.ceil(number / unit) * unit


def _row(quantity: Quantity) -> list[str]:
    formats = (".3f", ".3f", ".2f", ".0f", ".0f", ".3g")
    cells = ["-" if math.isnan(x) else format(x, form) for x, form in zip(quantity.found, formats, strict=True)]
    return [quantity.name.replace("_", " "), *cells]


def _move_row(move: MoveSummary) -> list[str]:
    shares = [f"{a / t:.1%}" if t else "" for t, a in zip(move.chain_tries, move.chain_accepted, strict=True)]
    return [move.move, str(move.tries), str(move.accepted), "" if move.share is None else f"{move.share:.1%}", *shares]


def _table(rows: list[list[str]]) -> list[str]:
    """Align cells, the first column to the left and the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    padded = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    return ["  ".join(cells).rstrip() for cells in padded]
