"""One allocation of features to stand for a posterior, and how stable each of its features is.

Draws number their features as they like and differ in how many they have. `estimate` looks for the allocation with
the least expected distance to a draw, after the best matching of features (`doublefeature.posterior.alignment`).
`paper_estimate` follows the paper: the most frequent K, and the draw nearest to the others in its user memberships.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from doublefeature.checks import check_count, check_seed
from doublefeature.errors import SettingsError
from doublefeature.posterior.alignment import (
    Features,
    Matching,
    Metric,
    Tally,
    canonical,
    count_shared,
    in_order,
    match,
    metric_for,
    pack,
    pack_members,
)
from doublefeature.posterior.assignment import assign
from doublefeature.posterior.draws import Draw, Posterior
from doublefeature.posterior.feature_summary import CLOSE, FeatureSummary
from doublefeature.posterior.item_effects import ItemEffects, Matched, item_effects
from doublefeature.posterior.likeness import LIKE, likeness
from doublefeature.ratings import Ratings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
T = TypeVar("T")

_MOST_DRAWS = 200
_FAR = 0.5
_FALL = 1e-12
_PAPER = Metric(user_weight=1.0, sign_penalty=0.0, complement=False)


@dataclass(frozen=True, eq=False)
class Allocation:
    """Features as a point estimate, ordered by users × items × |effect|, the largest first."""

    user_members: BoolArray  # (users, K)
    item_members: BoolArray  # (items, K)
    effect: FloatArray  # (K,)
    expected_distance: float
    """Mean over draws of the distance to the draw: of the metric, or for the paper's rule in user memberships."""
    method: str

    @property
    def n_features(self) -> int:
        """K."""
        return int(self.effect.size)


class _Candidate(NamedTuple):
    """An estimate, its expected distance, and the estimate that averaging the draws aligned to it gives."""

    distance: float
    features: Features
    average: Features


def estimate(
    posterior: Posterior,
    *,
    starts: int = 16,
    sweeten: int = 4,
    growths: int = 8,
    most_draws: int = 200,
    seed: int = 0,
    metric: Metric | None = None,
) -> Allocation:
    """Return the allocation with the least expected distance to the draws that a search finds.

    Draws (evenly spaced over all chains) are aligned to a baseline draw; a membership stands if more than
    half of them have it. That is every single flip that lowers the expected distance given the alignment; where half
    have it, the baseline decides. The best few of several baselines are aligned and averaged again until the distance
    falls no more, then the best one tries to take in features of other draws that it does not have.

    Parameters
    ----------
    starts
        Number of baseline draws, spread over the chains.
    sweeten
        How many of the starts to improve.
    growths
        How many other draws to take missing features from.
    most_draws
        Draws looked at.
    seed
        Fixes the choice of baselines.
    metric
        The distance; None lets features turn into complements if the draws have item offsets.
    """
    check_count("starts", starts, least=1)
    check_count("sweeten", sweeten, least=0)
    check_count("growths", growths, least=0)
    check_count("most_draws", most_draws, least=1)
    rng = np.random.default_rng(check_seed(seed))
    metric = metric or metric_for(posterior)
    draws = [_packed(draw, metric) for draw in _spread(_draws(posterior), most_draws)]
    blocks = np.array_split(np.arange(len(draws)), min(starts, len(draws)))
    ranked = []
    for block in blocks:
        baseline = _judge(draws, _whole(draws[rng.choice(block)], metric), metric)
        ranked.append(_better(baseline, _judge(draws, baseline.average, metric)))
    ranked.sort(key=lambda candidate: candidate.distance)
    ranked[:sweeten] = [_refine(draws, candidate, metric) for candidate in ranked[:sweeten]]
    best = min(ranked, key=lambda candidate: candidate.distance)
    for other in rng.permutation(len(draws))[:growths]:
        best = _grow(draws, best, draws[other], metric)
    effect = _Aligned(draws, best.features, metric).mean_effect(best.features.effect)
    return _allocation(replace(best.features, effect=effect), best.distance, "distance")


def _judge(draws: list[Features], features: Features, metric: Metric) -> _Candidate:
    """Return the expected distance of an estimate, and what the draws aligned to it average to."""
    tally, total = Tally(features), 0.0
    for draw in draws:
        matching = match(draw, features, metric)
        tally.add(draw, matching)
        total += matching.distance
    members = (
        _majority(tally.user_counts, len(draws), features.user_members),
        _majority(tally.item_counts, len(draws), features.item_members),
    )
    negative = _majority(tally.negative, tally.matched, features.effect < 0)
    average = _whole(pack_members(*members, np.where(negative, -1.0, 1.0)), metric)
    return _Candidate(total / len(draws), features, average)


def _majority(counts: NDArray[np.integer], total: int | IntArray, otherwise: BoolArray) -> BoolArray:
    """Return whether more than half are counted; where it is just half, what was."""
    return np.where(2 * counts == total, otherwise, 2 * counts > total)


def _refine(draws: list[Features], candidate: _Candidate, metric: Metric) -> _Candidate:
    """Align and average until the expected distance falls no more."""
    while (after := _judge(draws, candidate.average, metric)).distance < candidate.distance - _FALL:
        candidate = after
    return candidate


def _grow(draws: list[Features], candidate: _Candidate, other: Features, metric: Metric) -> _Candidate:
    """Add the features of a draw that the estimate does not have, and see whether averages over draws keep them."""
    here = candidate.features
    missing = _whole(other.take(match(other, here, metric).relative > _FAR), metric)
    if not missing.effect.size:
        return candidate
    bits = (
        np.concatenate((here.user_bits, missing.user_bits)),
        np.concatenate((here.item_bits, missing.item_bits)),
    )
    wider = Features(*bits, np.concatenate((here.effect, missing.effect)), here.n_users, here.n_items)
    trial = _judge(draws, _judge(draws, wider, metric).average, metric)
    return _refine(draws, trial, metric) if _better(candidate, trial) is trial else candidate


def _better(one: _Candidate, two: _Candidate) -> _Candidate:
    return two if two.distance < one.distance - _FALL else one


def _whole(features: Features, metric: Metric) -> Features:
    """Return the features that have both users and items, in canonical form where complements are allowed."""
    form = canonical(features) if metric.complement else features
    return form.take((form.user_sizes > 0) & (form.item_sizes > 0))


def paper_estimate(posterior: Posterior) -> Allocation:
    """Return the paper's estimate: K most frequent, A the draw nearest to all with that K, B and θ given A.

    Â minimises the mean over draws with K̂ features of min_π H(A, π(Â)), the Hamming distance under the best
    renumbering, found exactly. The paper does not say how B̂ and θ̂ follow: here each draw is renumbered to fit Â,
    an item belongs if it does in more than half of the draws, and the effect is the mean.
    """
    sizes, counts = np.unique([draw.n_features for draw in _draws(posterior)], return_counts=True)
    common = int(sizes[counts.argmax()])
    draws = [_packed(draw, _PAPER) for draw in _spread([d for d in posterior if d.n_features == common], _MOST_DRAWS)]
    distance = _user_distances(draws).mean(axis=1)
    centre = draws[int(distance.argmin())]
    aligned = _Aligned(draws, centre, _PAPER)
    items = _majority(aligned.partners.item_counts, aligned.partners.matched, centre.item_members)
    effect = aligned.mean_effect(centre.effect, close_only=False)
    return _allocation(pack_members(centre.user_members, items, effect), float(distance.min()), "paper")


def _user_distances(draws: list[Features]) -> FloatArray:
    """Return the Hamming distance of the user memberships of every two draws, features renumbered to fit best."""
    out = np.zeros((len(draws), len(draws)))
    totals = [int(draw.user_sizes.sum()) for draw in draws]
    for row, one in enumerate(draws):
        for column in range(row):
            shared = count_shared(one.user_bits, draws[column].user_bits)
            most = shared[np.arange(shared.shape[0]), assign(-shared.astype(np.float64))].sum()
            out[row, column] = out[column, row] = totals[row] + totals[column] - 2 * most
    return out


class _Aligned:
    """All draws matched with an estimate: partners' effects, which of them are close, and member counts."""

    def __init__(self, draws: Iterable[Features], estimate: Features, metric: Metric) -> None:
        self.partners = Tally(estimate)
        self._estimate, self._matched = estimate, list[tuple[Features, Matching]]()
        effects, close, numbers, signs = [], [], [], []
        for draw in draws:
            matching = match(draw, estimate, metric)
            self._matched.append((draw, matching))
            self.partners.add(draw, matching)
            found = np.flatnonzero(matching.partner >= 0)
            to = matching.partner[found]
            effects.append(np.full(estimate.effect.size, np.nan))
            effects[-1][to] = np.where(matching.swapped, -draw.effect, draw.effect)[found]
            close.append(np.zeros(estimate.effect.size, bool))
            close[-1][to] = matching.relative[found] < CLOSE
            origin = np.arange(draw.effect.size) if draw.origin is None else draw.origin
            numbers.append(np.full(estimate.effect.size, -1))
            numbers[-1][to] = np.maximum(origin, ~origin)[found]
            signs.append(np.ones(estimate.effect.size))
            signs[-1][to] = np.where((origin < 0) == matching.swapped, 1.0, -1.0)[found]
        self.effects = np.array(effects)  # (draws, K), not a number where there is no partner
        self.close = np.array(close)  # (draws, K)
        self.numbers = np.array(numbers)  # (draws, K), partners' numbers in their draws, −1 for none
        self.signs = np.array(signs)  # (draws, K)

    @cached_property
    def recurring(self) -> Tally:
        """Sums over close partners only."""
        tally = Tally(self._estimate)
        for (draw, matching), row in zip(self._matched, self.close, strict=True):
            tally.add(draw, matching, (matching.partner >= 0) & row[matching.partner])
        return tally

    def speaking(self, feature: int, close_only: bool = True) -> BoolArray:
        """Return the draws in which a feature recurs, or if there are none, those with a partner."""
        close = self.close[:, feature]
        return close if close_only and close.any() else self.numbers[:, feature] >= 0

    def effects_of(self, feature: int, close_only: bool = True) -> FloatArray:
        """Return a feature's effects in the draws that speak of it."""
        return np.asarray(self.effects[self.speaking(feature, close_only), feature])

    def matched(self) -> Matched:
        """Return which features of the draws speak of each feature."""
        chosen = np.array([self.speaking(feature) for feature in range(self.close.shape[1])])
        return Matched(np.where(chosen.T, self.numbers, -1), self.signs)

    def mean_effect(self, otherwise: FloatArray, close_only: bool = True) -> FloatArray:
        """Return the mean effect of every feature."""
        found = [self.effects_of(feature, close_only) for feature in range(otherwise.size)]
        return np.array([v.mean() if v.size else o for v, o in zip(found, otherwise, strict=True)], np.float64)


def _allocation(features: Features, distance: float, method: str) -> Allocation:
    weight = features.user_sizes * features.item_sizes * np.abs(features.effect)
    ordered = features.take(np.argsort(-weight, kind="stable"))
    return Allocation(ordered.user_members, ordered.item_members, ordered.effect, distance, method)


def _draws(posterior: Posterior) -> list[Draw]:
    if not posterior.draws:
        raise SettingsError("the posterior holds no draws. Let the schedule keep at least one.")
    return posterior.draws


def _spread(values: list[T], most: int) -> list[T]:
    """Return at most so many values, evenly spaced."""
    places = np.linspace(0, len(values) - 1, min(len(values), most)).round().astype(int)
    return [values[place] for place in places]


def _packed(draw: Draw, metric: Metric) -> Features:
    """Return a draw's features in a form and order that do not depend on their numbers."""
    features = pack(draw)
    return in_order(canonical(features) if metric.complement else features)


def summarise(
    posterior: Posterior, allocation: Allocation, ratings: Ratings | None = None, *, by_item: bool = True
) -> list[FeatureSummary]:
    """Return every feature of an estimate with its effect, members and stability over all draws.

    Without the ratings, the number of ratings is unknown and plays no part in the order of leading items. Without
    `by_item`, effects of single items are left out.
    """
    metric = metric_for(posterior)
    columns = _columns(allocation)
    aligned = _Aligned((_packed(draw, metric) for draw in _draws(posterior)), columns, metric)
    if posterior.graded and columns.effect.size:
        shape = columns.user_members, columns.item_members * columns.effect
        aligned.close = likeness(posterior.draws, aligned.numbers, *shape, centred=metric.complement) >= LIKE
    chains = np.array([draw.chain for draw in posterior])
    found = [_summary(feature, allocation, aligned, chains, ratings) for feature in range(allocation.n_features)]
    return _with_item_effects(found, posterior, aligned) if by_item and posterior.graded else found


def _with_item_effects(
    summaries: list[FeatureSummary], posterior: Posterior, aligned: _Aligned
) -> list[FeatureSummary]:
    """Return the features with their items' effects, the largest first.

    An item that belongs in none of the draws that speak of the feature has the feature's own effect.
    """
    sizes = [feature.items.size for feature in summaries]
    items = np.concatenate([np.zeros(0, np.int64), *(feature.leading_items for feature in summaries)])
    found = item_effects(posterior.draws, aligned.matched(), items, np.repeat(np.arange(len(sizes)), sizes))
    parts = np.split(np.stack(found), np.cumsum(sizes)[:-1], axis=1) if sizes else []
    return [_led_by_effects(feature, part) for feature, part in zip(summaries, parts, strict=True)]


def _led_by_effects(feature: FeatureSummary, effects: FloatArray) -> FeatureSummary:
    whole = np.array([feature.effect, *feature.effect_80])[:, None]
    known = np.where(np.isnan(effects), whole, effects)
    order = np.argsort(-np.abs(known[0]), kind="stable")
    return replace(feature, leading_items=feature.leading_items[order], leading_effects=ItemEffects(*known[:, order]))


def _summary(
    feature: int, allocation: Allocation, aligned: _Aligned, chains: IntArray, ratings: Ratings | None
) -> FeatureSummary:
    users = np.flatnonzero(allocation.user_members[:, feature])
    items = np.flatnonzero(allocation.item_members[:, feature])
    effects, close = aligned.effects_of(feature), aligned.close[:, feature]
    if not effects.size:
        effects = allocation.effect[[feature]]
    low_95, low_80, high_80, high_95 = np.quantile(effects, (0.025, 0.1, 0.9, 0.975)).tolist()
    every, near = aligned.partners, aligned.recurring
    recurred = max(int(near.matched[feature]), 1)
    item_probability = every.item_counts[:, feature] / chains.size
    raters = np.zeros(item_probability.size) if ratings is None else np.diff(ratings.arrays.item_ptr)
    return FeatureSummary(
        users=users,
        items=items,
        effect=float(effects.mean()),
        effect_sd=float(effects.std()),
        effect_80=(low_80, high_80),
        effect_95=(low_95, high_95),
        recurrence=float(close.mean()),
        recurrence_by_chain={int(chain): float(close[chains == chain].mean()) for chain in np.unique(chains)},
        user_probability=every.user_counts[:, feature] / chains.size,
        item_probability=item_probability,
        user_probability_matched=near.user_counts[:, feature] / recurred,
        item_probability_matched=near.item_counts[:, feature] / recurred,
        leading_items=items[np.lexsort((-raters[items], -item_probability[items]))],
        n_ratings=None if ratings is None else _ratings_inside(allocation.user_members[:, feature], items, ratings),
    )


def _ratings_inside(user_members: BoolArray, items: IntArray, ratings: Ratings) -> int:
    """Return how many ratings members gave to these items."""
    starts, raters = ratings.arrays.item_ptr, ratings.arrays.user_codes
    return sum(int(user_members[raters[starts[item] : starts[item + 1]]].sum()) for item in items)


def aligner(posterior: Posterior, allocation: Allocation) -> Callable[[Draw], tuple[IntArray, BoolArray]]:
    """Return a function from a draw to the estimate's feature that each of its features is, −1 for none.

    The second array says which features match by their complement: members ↔ non-members, θ → −θ.
    """
    metric, columns = metric_for(posterior), _columns(allocation)

    def align(draw: Draw) -> tuple[IntArray, BoolArray]:
        matching = match(draw, columns, metric)
        return matching.partner, matching.swapped

    return align


def remembering(align: Callable[[Draw], tuple[IntArray, BoolArray]]) -> Callable[[Draw], tuple[IntArray, BoolArray]]:
    """Return an aligner that aligns each draw once and knows it again by chain and sweep."""
    found: dict[tuple[int, int], tuple[IntArray, BoolArray]] = {}

    def remembered(draw: Draw) -> tuple[IntArray, BoolArray]:
        name = draw.chain, draw.sweep
        if name not in found:
            found[name] = align(draw)
        return found[name]

    return remembered


def _columns(allocation: Allocation) -> Features:
    return pack_members(allocation.user_members, allocation.item_members, allocation.effect)
