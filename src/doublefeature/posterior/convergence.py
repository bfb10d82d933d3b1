r"""Have the chains settled? R-hat, effective numbers of draws, and the quantities they are asked of.

Features have no identity from draw to draw, so only label-free quantities are judged: the log-likelihood, K, the
hyperparameters, and the predictive means of a fixed set of (user, item) pairs, the *probes*.

Every chain is split into two halves of n draws. With $\bar v_h$ and $s_h^2$ the mean and variance of half h,
$W$ the mean of the $s_h^2$ and $B$ the variance of the $\bar v_h$, $\hat R = \sqrt{(n-1)/n + B/W}$. It is taken of the
ranks turned into normal scores, and of the ranks of the distances to the median, and the larger one counts
(Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_count, check_seed
from doublefeature.config import LEARNABLE
from doublefeature.errors import RatingsError, SettingsError
from doublefeature.model.ordinal import level_probabilities
from doublefeature.model.state import NOISE
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.predict import draw_scores
from doublefeature.posterior.prediction import level_values
from doublefeature.posterior.strangers import user_noise
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
Codes = NDArray[np.int64]

HYPER_NAMES = ("noise_scale", *LEARNABLE)
"""Names of the places in `Draw.hyper`."""
LEAST_DRAWS = 8
"""Draws per chain below which nothing can be said: four in each half."""
MOST_RHAT = 1.05
"""R-hat from which chains are said to differ."""
LEAST_ESS = 100.0
"""Effective number of draws from which a quantity is known well enough."""
TAILS = (0.05, 0.95)
"""Quantiles whose effective number of draws is the tail's."""


class Convergence(NamedTuple):
    """What several chains say about one quantity; NaN where there are too few draws to say it."""

    mean: float
    sd: float
    rhat: float
    ess_bulk: float
    ess_tail: float
    mcse: float  # standard error of the mean through simulation


def judge(chains: FloatArray) -> Convergence:
    """Summarise one quantity, given as an array (chains, draws)."""
    sd = float(np.std(chains, ddof=1)) if chains.size > 1 else math.nan
    return Convergence(float(chains.mean()), sd, rhat(chains), ess_bulk(chains), ess_tail(chains), mcse_mean(chains))


class Quantity(NamedTuple):
    """A label-free quantity and what the chains say about it; a probe also has its pair of raw ids."""

    name: str
    found: Convergence
    pair: tuple[Hashable, Hashable] | None = None

    @property
    def settled(self) -> bool:
        """Whether the chains agree on it and know it well enough; a constant is settled."""
        return self.found.sd == 0.0 or (self.found.rhat < MOST_RHAT and self.found.ess_bulk >= LEAST_ESS)

    @property
    def note(self) -> str:
        """Why R-hat is not a finite number; empty when it is."""
        if self.found.sd == 0.0:
            return "constant"
        if math.isinf(self.found.rhat):
            return "every chain keeps its own value"
        return "too few draws" if math.isnan(self.found.rhat) else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, None in place of numbers that are not finite."""
        pair = {} if self.pair is None else {"user": plain_id(self.pair[0]), "item": plain_id(self.pair[1])}
        found = {key: value if math.isfinite(value) else None for key, value in self.found._asdict().items()}
        return {"name": self.name, **pair, **found, "note": self.note}


def rhat(chains: FloatArray) -> float:
    """Return the larger of bulk and folded rank-normalised split R-hat of an array (chains, draws).

    One chain is compared with itself, half by half. NaN for a constant, for numbers that are not finite and for
    fewer than `LEAST_DRAWS` draws per chain; infinite when every half keeps one value, and not all the same one.
    """
    if not _enough(chains):
        return math.nan
    halves = _halves(chains)
    folded = np.abs(halves - np.median(halves))
    return float(np.fmax(_plain_rhat(_normal_scores(halves)), _plain_rhat(_normal_scores(folded))))


def ess_bulk(chains: FloatArray) -> float:
    """Return how many independent draws would know the middle of the distribution as well."""
    return _effective_draws(_normal_scores(_halves(chains))) if _enough(chains) else math.nan


def ess_tail(chains: FloatArray) -> float:
    """Return how many independent draws would know the 5 % and 95 % quantiles as well: the worse of the two."""
    if not _enough(chains):
        return math.nan
    below = [(chains <= quantile).astype(np.float64) for quantile in np.quantile(chains, TAILS)]
    return min(_effective_draws(_halves(inside)) for inside in below)


def mcse_mean(chains: FloatArray) -> float:
    """Return the Monte Carlo standard error of the mean."""
    if not _enough(chains):
        return math.nan
    return float(np.std(chains, ddof=1)) / math.sqrt(_effective_draws(_halves(chains)))


def normal_quantile(p: float) -> float:
    r"""Return $\Phi^{-1}(p)$ for 0 < p < 1.

    In the lower half, Newton steps on $\log\Phi(x) = \log p$ from $x = -\sqrt{-2\log 2p}$. That start lies below the
    root because $\Phi(-x) \le e^{-x^2/2}/2$, and $\log\Phi$ is concave, so that the steps climb to the root.
    """
    if p > 0.5:
        return -normal_quantile(1.0 - p)
    x = -math.sqrt(-2.0 * math.log(2.0 * p))
    for _ in range(60):
        below = 0.5 * math.erfc(-x * math.sqrt(0.5))
        step = math.log(p / below) * below * math.sqrt(2.0 * math.pi) * math.exp(0.5 * x * x)
        x += step
        if abs(step) < 1e-15 * (1.0 - x):
            break
    return x


def _enough(chains: FloatArray) -> bool:
    return chains.shape[1] >= LEAST_DRAWS and bool(np.isfinite(chains).all())


def _halves(chains: FloatArray) -> FloatArray:
    """Return the first and last halves of all chains as rows; an odd draw in the middle is left out."""
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]])


def _normal_scores(values: FloatArray) -> FloatArray:
    """Replace values by the normal quantiles of their ranks, ties by the quantile of their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    twice_rank = 2 * np.cumsum(counts) - counts + 1
    scores: FloatArray = _scores_of_ranks(values.size)[twice_rank - 2][place]
    return scores.reshape(values.shape)


@lru_cache(maxsize=8)
def _scores_of_ranks(size: int) -> FloatArray:
    r"""Return the normal scores $\Phi^{-1}((r - 3/8) / (size + 1/4))$ of the ranks r = 1, 3/2, 2, …, size."""
    ranks = np.arange(2, 2 * size + 1) / 2.0
    return np.array([normal_quantile(p) for p in ((ranks - 0.375) / (size + 0.25)).tolist()])


def _plain_rhat(halves: FloatArray) -> float:
    if np.ptp(halves) == 0.0:
        return math.nan
    n_draws = halves.shape[1]
    within = float((halves - halves[:, :1]).var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    return math.sqrt(between / within + (n_draws - 1) / n_draws) if within > 0.0 else math.inf


def _effective_draws(halves: FloatArray) -> float:
    r"""Return the number of draws over their autocorrelation time $1 + 2\sum_t \rho_t$, all chains taken together.

    The sum runs over pairs $\rho_{2m} + \rho_{2m+1}$ while they are positive, each cut down to the one before (Geyer
    1992). The correlations count differences between chains, so chains that stay apart are worth one draw each.
    """
    if np.ptp(halves) == 0.0:
        return float(halves.size)
    n_draws = halves.shape[1]
    spectrum = np.fft.rfft(halves - halves.mean(axis=1, keepdims=True), 2 * n_draws, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n_draws, axis=1)[:, :n_draws].mean(axis=0) / n_draws
    within = covariance[0] * n_draws / (n_draws - 1)
    correlation = 1.0 - (within - covariance) / (covariance[0] + halves.mean(axis=1).var(ddof=1))
    correlation[0] = 1.0
    last = (n_draws - 3) // 2
    even, odd = correlation[: 2 * last + 1 : 2], correlation[1 : 2 * last + 2 : 2]
    pairs = even + odd
    ends = np.flatnonzero(pairs <= 0.0)
    stop = int(ends[0]) if ends.size else last
    rest = float(even[stop]) if even[stop] > 0.0 or pairs[stop] >= 0.0 else 0.0
    time = 2.0 * float(np.minimum.accumulate(pairs[:stop]).sum()) + rest - 1.0
    return halves.size / max(time, 1.0 / math.log10(halves.size))


class Probes(NamedTuple):
    """The (user, item) pairs whose predictive means are followed, in codes."""

    users: Codes
    items: Codes


def draw_probes(ratings: Ratings, n_probes: int, seed: int) -> Probes:
    """Draw different pairs at random, rated or not; the seed and the numbers of users and items fix them."""
    check_count("n_probes", n_probes, least=1)
    pairs = ratings.n_users * ratings.n_items
    chosen = np.random.default_rng(check_seed(seed)).choice(pairs, size=min(n_probes, pairs), replace=False)
    return Probes(*np.divmod(chosen.astype(np.int64), ratings.n_items))


def plain_id(label: Hashable) -> int | str:
    """Return an id as a number or text that every file format takes."""
    if isinstance(label, int) and not isinstance(label, bool) and -(2**63) <= label < 2**63:
        return label
    return str(label).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def plain_ids(ids: Sequence[Hashable]) -> NDArray[Any]:
    """Return ids as an array of whole numbers if all of them are, else of text."""
    plain = [plain_id(label) for label in ids]
    if all(isinstance(label, int) for label in plain):
        return np.array(plain, np.int64)
    return np.array([str(label) for label in plain], object)


def follow(posterior: Posterior, ratings: Ratings, n_probes: int, seed: int) -> tuple[list[Quantity], list[Quantity]]:
    """Judge the log-likelihood, K, the noise scale and the hyperparameters that vary; and the probes."""
    named = dict(zip(HYPER_NAMES, np.moveaxis(per_draw(posterior, lambda draw: draw.hyper), -1, 0), strict=False))
    series = {
        "log_likelihood": per_draw(posterior, lambda draw: draw.log_likelihood),
        "K": per_draw(posterior, lambda draw: draw.n_features),
        **{name: values for name, values in named.items() if name == HYPER_NAMES[NOISE] or np.ptp(values)},
    }
    probes = draw_probes(ratings, n_probes, seed)
    means = probe_means(posterior, ratings, probes)
    pairs = [(ratings.users[u], ratings.items[i]) for u, i in zip(*map(np.ndarray.tolist, probes), strict=True)]
    followed = [Quantity("predictive_mean", judge(means[..., k]), pair) for k, pair in enumerate(pairs)]
    return [Quantity(name, judge(values)) for name, values in series.items()], followed


def probe_means(posterior: Posterior, ratings: Ratings, probes: Probes) -> FloatArray:
    """Return the mean rating of every probe in every draw, (chains, draws, probes)."""
    values = level_values(ratings.levels)

    def means(draw: Draw) -> FloatArray:
        scores = draw_scores(draw, posterior.base, probes.users, probes.items)
        return level_probabilities(scores, user_noise(draw, probes.users, posterior.scales), draw.cutpoints) @ values

    return per_draw(posterior, means)


def per_draw(posterior: Posterior, value: Callable[[Draw], float | NDArray[np.generic]]) -> NDArray[Any]:
    """Return a value of every draw as an array (chains, draws, …); chains are cut to the shortest."""
    shortest = min(len(chain) for chain in posterior.chains)
    return np.array([[value(draw) for draw in chain[:shortest]] for chain in posterior.chains])


def check_fits(posterior: Posterior, ratings: Ratings) -> None:
    """Raise unless there are draws, and the ratings have their sizes."""
    if not len(posterior):
        raise SettingsError("the posterior holds no draws. Run more sweeps than the warm-up takes.")
    draw = posterior.draws[0]
    sizes = (draw.user_offset.size, draw.item_offset.size, draw.cutpoints.size - 1)
    if sizes != (ratings.n_users, ratings.n_items, ratings.n_levels):
        raise RatingsError(
            f"the draws have {sizes[0]} users, {sizes[1]} items and {sizes[2]} levels, the ratings {ratings.n_users}, "
            f"{ratings.n_items} and {ratings.n_levels}. Pass the ratings the model was fitted to."
        )
