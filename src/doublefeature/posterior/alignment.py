"""How far apart the features of two draws are, and which feature of one is which feature of the other.

A feature is a pair (users S, items T) with a signed effect. Two features are apart by

    w |S xor S'| / users + (1 − w) |T xor T'| / items + v [signs differ],

a feature without partner by its distance to the empty one. Where items have offsets, (S, T, θ) and (not S, T, −θ)
give the same scores (the offsets of T take up θ): features are then compared in whichever form is nearer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doublefeature._jit import kernel
from doublefeature.errors import SettingsError
from doublefeature.model.state import members
from doublefeature.posterior.assignment import assign
from doublefeature.posterior.draws import Draw, Posterior

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
WordArray = NDArray[np.uint64]

_NOTHING_GAINED = -1e-12


@dataclass(frozen=True)
class Metric:
    """What counts in the distance between two features."""

    user_weight: float = 0.5
    """w: share of the users in the distance; the items have the rest."""
    sign_penalty: float = 0.25
    """v: added when one effect is positive and the other is not."""
    complement: bool = True
    """Whether a feature may also be read as its users' complement with the opposite effect."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.user_weight <= 1.0:
            raise SettingsError(f"user_weight must lie between 0 and 1, got {self.user_weight!r}.")
        if not 0.0 <= self.sign_penalty < np.inf:
            raise SettingsError(f"sign_penalty must be a finite number, at least 0, got {self.sign_penalty!r}.")


def metric_for(posterior: Posterior) -> Metric:
    """Return the usual metric, with complements only where item offsets are there to absorb them."""
    return Metric(complement=any(bool(draw.item_offset.any()) for draw in posterior))


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a draw or of an estimate, one row of bits each: bit u % 64 of word u // 64 is user u."""

    user_bits: WordArray  # (K, words)
    item_bits: WordArray  # (K, words)
    effect: FloatArray  # (K,)
    n_users: int
    n_items: int
    origin: IntArray | None = None
    """Which feature of a draw each is: its number k, or ~k where it is that feature's complement."""

    @cached_property
    def user_sizes(self) -> IntArray:
        """How many users each feature has."""
        return count_bits(self.user_bits)

    @cached_property
    def item_sizes(self) -> IntArray:
        """How many items each feature has."""
        return count_bits(self.item_bits)

    @property
    def user_members(self) -> BoolArray:
        """The (users, K) membership matrix."""
        return from_bits(self.user_bits, self.n_users)

    @property
    def item_members(self) -> BoolArray:
        """The (items, K) membership matrix."""
        return from_bits(self.item_bits, self.n_items)

    def take(self, which: IntArray | BoolArray) -> Features:
        """Return some of the features, in the order asked for."""
        parts = self.user_bits[which], self.item_bits[which], self.effect[which]
        return Features(*parts, self.n_users, self.n_items, None if self.origin is None else self.origin[which])

    def complement(self, which: BoolArray) -> Features:
        """Return a copy in which members and non-members of some features change places and effects change sign."""
        everybody = to_bits(np.ones((self.n_users, 1), bool))
        turned = np.where(which[:, None], self.user_bits ^ everybody, self.user_bits)
        origin = None if self.origin is None else np.where(which, ~self.origin, self.origin)
        return replace(self, user_bits=turned, effect=np.where(which, -self.effect, self.effect), origin=origin)


def count_bits(bits: WordArray) -> IntArray:
    """Return how many bits each row has."""
    return np.asarray(np.bitwise_count(bits).sum(axis=1, dtype=np.int64))


def to_bits(matrix: BoolArray) -> WordArray:
    """Return one row of bits for every column of a (rows, K) matrix."""
    n_rows, n_features = matrix.shape
    padded = np.zeros((n_features, 64 * -(-n_rows // 64)), bool)
    padded[:, :n_rows] = matrix.T
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def from_bits(bits: WordArray, n_rows: int) -> BoolArray:
    """Return the (rows, K) matrix of the bits: the inverse of `to_bits`."""
    octets = bits.astype("<u8").view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_rows, bitorder="little").astype(bool).T


def pack_members(user_members: BoolArray, item_members: BoolArray, effect: FloatArray) -> Features:
    """Return the features of two membership matrices."""
    sizes = user_members.shape[0], item_members.shape[0]
    return Features(to_bits(user_members), to_bits(item_members), np.asarray(effect, np.float64), *sizes)


def pack(draw: Draw) -> Features:
    """Return the features of a draw, in its order."""
    slots = np.arange(draw.n_features)
    features = pack_members(members(draw.user_words, slots), members(draw.item_words, slots), draw.effect)
    return replace(features, origin=slots)


def canonical(features: Features) -> Features:
    """Return every feature in its smaller form: at most half the users, and of two halves the positive one."""
    twice = 2 * features.user_sizes
    large = (twice > features.n_users) | ((twice == features.n_users) & (features.effect < 0))
    return features.complement(large)


def in_order(features: Features) -> Features:
    """Return the features in an order that does not depend on how they were numbered."""
    sums = features.user_bits.sum(axis=1), features.item_bits.sum(axis=1)
    return features.take(np.lexsort((*sums, features.effect)))


@kernel
def count_shared(one: WordArray, two: WordArray) -> IntArray:
    """Return how many bits every row of `one` shares with every row of `two` (bits are added up in fields)."""
    shared = np.zeros((one.shape[0], two.shape[0]), np.int64)
    for k in range(one.shape[0]):
        for other in range(two.shape[0]):
            total = np.uint64(0)
            for place in range(one.shape[1]):
                word = one[k, place] & two[other, place]
                word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
                pairs = word & np.uint64(0x3333333333333333)
                word = pairs + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
                word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
                total += (word * np.uint64(0x0101010101010101)) >> np.uint64(56)
            shared[k, other] = np.int64(total)
    return shared


@kernel
def add_bits(counts: NDArray[np.int32], bits: WordArray, rows: IntArray, swapped: BoolArray) -> None:
    """Add the members of feature k, or its non-members if swapped, to row `rows[k]` of the counts (−1: nowhere)."""
    for k in range(rows.size):
        row = rows[k]
        if row < 0:
            continue
        turn = ~np.uint64(0) if swapped[k] else np.uint64(0)
        for place in range(bits.shape[1]):
            word = bits[k, place] ^ turn
            for bit in range(64):
                counts[row, 64 * place + bit] += np.int32((word >> np.uint64(bit)) & np.uint64(1))


class Matching(NamedTuple):
    """Which feature of the estimate each feature of a draw is."""

    partner: IntArray  # (K,)  the estimate's feature, −1 for none
    costs: FloatArray  # (K,)  distance to it, or to the empty feature
    swapped: BoolArray  # (K,)  whether it is the feature's complement that matches
    relative: FloatArray  # (K,)  see `relative_distance`; 1 where there is no partner
    distance: float  # all costs, those of the estimate's unmatched features included


def match(draw: Draw | Features, estimate: Features, metric: Metric | None = None) -> Matching:
    """Pair the features of a draw with those of an estimate at the least total distance.

    Padding both sides with empty features and leaving pairs out are the same: with e_k the distance of feature k to
    the empty one, the total is Σ_k e_k + Σ_l e_l + Σ_pairs (d_kl − e_k − e_l), and only pairs that lower it are made.
    """
    metric = metric or Metric()
    features = pack(draw) if isinstance(draw, Draw) else draw
    if (features.n_users, features.n_items) != (estimate.n_users, estimate.n_items):
        raise SettingsError(
            f"the draw has {features.n_users} users and {features.n_items} items, "
            f"the estimate {estimate.n_users} and {estimate.n_items}."
        )
    distances, turned = pair_distances(features, estimate, metric)
    alone, missed = distance_to_empty(features, metric), distance_to_empty(estimate, metric)
    partner = _best_pairs(distances - alone[:, None] - missed)
    found = np.flatnonzero(partner >= 0)
    to = partner[found]
    costs, swapped, relative = alone.copy(), np.zeros(alone.size, bool), np.ones(alone.size)
    costs[found] = distances[found, to]
    swapped[found] = turned[found, to]
    aligned = features.complement(swapped).take(found)
    relative[found] = relative_distance(aligned, estimate.take(to), metric)
    distance = float(costs.sum() + missed.sum() - missed[to].sum())
    return Matching(partner, costs, swapped, relative, distance)


def pair_distances(one: Features, two: Features, metric: Metric) -> tuple[FloatArray, BoolArray]:
    """Return the distance of every pair of features, and whether the complement is the nearer form."""
    per_user, per_item = _bit_costs(one, metric)
    shared = count_shared(one.user_bits, two.user_bits)
    users_apart = one.user_sizes[:, None] + two.user_sizes - 2 * shared
    items_apart = one.item_sizes[:, None] + two.item_sizes - 2 * count_shared(one.item_bits, two.item_bits)
    opposite = (one.effect < 0)[:, None] != (two.effect < 0)
    items = per_item * items_apart
    straight: FloatArray = per_user * users_apart + items + metric.sign_penalty * opposite
    if not metric.complement:
        return straight, np.zeros(straight.shape, bool)
    turned: FloatArray = per_user * (one.n_users - users_apart) + items + metric.sign_penalty * ~opposite
    return np.minimum(straight, turned), turned < straight


def distance_to_empty(features: Features, metric: Metric) -> FloatArray:
    """Return what each feature costs when it has no partner."""
    per_user, per_item = _bit_costs(features, metric)
    users = features.user_sizes
    if metric.complement:
        users = np.minimum(users, features.n_users - users)
    return np.asarray(per_user * users + per_item * features.item_sizes)


def relative_distance(one: Features, two: Features, metric: Metric) -> FloatArray:
    """Return w |S xor S'| / (|S| + |S'|) + (1 − w) |T xor T'| / (|T| + |T'|), row by row; 1 for opposite effects."""
    users = _share_apart(one.user_bits, two.user_bits)
    items = _share_apart(one.item_bits, two.item_bits)
    both = metric.user_weight * users + (1.0 - metric.user_weight) * items
    return np.where((one.effect < 0) == (two.effect < 0), both, 1.0)


def _share_apart(one: WordArray, two: WordArray) -> FloatArray:
    return np.asarray(count_bits(one ^ two) / np.maximum(count_bits(one) + count_bits(two), 1))


def _bit_costs(features: Features, metric: Metric) -> tuple[float, float]:
    """Return what one user and one item count."""
    return metric.user_weight / max(features.n_users, 1), (1.0 - metric.user_weight) / max(features.n_items, 1)


def _best_pairs(gain: FloatArray) -> IntArray:
    """Return the column of each row that minimises the total, −1 where a pair would gain nothing."""
    bounded = np.minimum(gain, 0.0)
    partner = np.full(gain.shape[0], -1)
    if gain.shape[0] <= gain.shape[1]:
        partner[:] = assign(bounded)
    else:
        partner[assign(bounded.T)] = np.arange(gain.shape[1])
    found = np.flatnonzero(partner >= 0)
    partner[found[gain[found, partner[found]] > _NOTHING_GAINED]] = -1
    return partner


class Tally:
    """Sums over draws of the features that match each feature of an estimate, turned to its side."""

    def __init__(self, estimate: Features) -> None:
        n_features, user_words = estimate.user_bits.shape
        self._sizes = estimate.n_users, estimate.n_items
        self._user_counts = np.zeros((n_features, 64 * user_words), np.int32)
        self._item_counts = np.zeros((n_features, 64 * estimate.item_bits.shape[1]), np.int32)
        self.negative = np.zeros(n_features, np.int64)
        self.matched = np.zeros(n_features, np.int64)

    def add(self, features: Features, matching: Matching, which: BoolArray | None = None) -> None:
        """Count the matched features of one draw, or some of them."""
        partner = matching.partner if which is None else np.where(which, matching.partner, -1)
        add_bits(self._user_counts, features.user_bits, partner, matching.swapped)
        add_bits(self._item_counts, features.item_bits, partner, np.zeros(partner.size, bool))
        found = partner >= 0
        self.matched[partner[found]] += 1
        self.negative[partner[found]] += ((features.effect < 0) != matching.swapped)[found]

    @property
    def user_counts(self) -> NDArray[np.int32]:
        """In how many draws each user belongs, shape (users, K)."""
        return self._user_counts[:, : self._sizes[0]].T

    @property
    def item_counts(self) -> NDArray[np.int32]:
        """In how many draws each item belongs, shape (items, K)."""
        return self._item_counts[:, : self._sizes[1]].T
