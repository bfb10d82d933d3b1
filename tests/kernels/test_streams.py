"""Streams: known answers of the generator, and independence of whatever the counter tells apart.

Correlations of n independent uniform numbers have standard error 1/√n; five of them leave room for the few
hundred compared here. Chi-square tests pass above p = 1e-4. Seeds are fixed.
"""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from doublefeature._jit import kernel
from doublefeature.kernels import streams
from doublefeature.kernels.streams import (
    Stream,
    below,
    branch,
    new_stream,
    odd_step,
    philox,
    random_bits,
    seeds_of,
    seek,
    shuffle,
    stream_key,
    tick,
    to_unit,
    uniform,
)

STANDARD_ERRORS = 5.0
LOWEST_P = 1e-4
ONES = 0xFFFFFFFF
SPELT = [int("".join(map(str, order)), 4) for order in permutations(range(4))]


@kernel
def point(stream: Stream, seed: int, chain: int, sweep: int, block: int, step: int, entity: int) -> None:
    seek(stream, stream_key(seed, chain), tick(sweep, block, step), entity)


@kernel
def fill_uniform(stream: Stream, out: np.ndarray) -> None:
    for j in range(out.size):
        out[j] = uniform(stream)


@kernel
def fill_first_uniform(seed: int, out: np.ndarray) -> None:
    stream = new_stream()
    for entity in range(out.size):
        seek(stream, stream_key(seed, 0), tick(0, 0, 0), entity)
        out[entity] = uniform(stream)


@kernel
def fill_branches(seed: int, out: np.ndarray) -> None:
    """Fill (entities, twigs, draws)."""
    stream = new_stream()
    seeds = seeds_of(out.shape[0], stream_key(seed, 0), tick(0, 0, 0))
    for entity in range(out.shape[0]):
        for twig in range(out.shape[1]):
            branch(stream, seeds, entity, twig)
            for n in range(out.shape[2]):
                out[entity, twig, n] = uniform(stream)


@kernel
def fill_below(stream: Stream, limit: int, out: np.ndarray) -> None:
    for j in range(out.size):
        out[j] = below(stream, limit)


@kernel
def biased_shuffle(stream: Stream, values: np.ndarray) -> None:
    for j in range(values.size):
        other = below(stream, values.size)
        values[j], values[other] = values[other], values[j]


@kernel
def count_orders(stream: Stream, biased: bool, n_draws: int, out: np.ndarray) -> None:
    """Count orders of 0, 1, 2, 3 by the number that their digits spell in base 4."""
    for _ in range(n_draws):
        values = np.arange(4)
        if biased:
            biased_shuffle(stream, values)
        else:
            shuffle(stream, values)
        spelt = 0
        for value in values:
            spelt = 4 * spelt + value
        out[spelt] += 1


def stream_at(*, seed=1, chain=0, sweep=3, block=4, step=5, entity=6) -> Stream:
    stream = new_stream()
    point(stream, seed, chain, sweep, block, step, entity)
    return stream


def uniforms(n: int, **place: int) -> np.ndarray:
    out = np.empty(n)
    fill_uniform(stream_at(**place), out)
    return out


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return abs(float(np.corrcoef(a, b)[0, 1]))


class TestKnownAnswers:
    """Philox4x32-10 against the published answers of its authors (counter, key, result, in 32-bit words)."""

    @pytest.mark.parametrize(
        ("counter", "key", "words"),
        [
            ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
            ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
            (
                (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
                (0xA4093822, 0x299F31D0),
                (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
            ),
        ],
    )
    def test_words(self, counter, key, words):
        low, high = counter[1] << 32 | counter[0], counter[3] << 32 | counter[2]
        first, second = philox(np.uint64(key[1] << 32 | key[0]), np.uint64(low), np.uint64(high))
        assert int(first) == words[1] << 32 | words[0]
        assert int(second) == words[3] << 32 | words[2]

    def test_stream_walks_in_odd_steps_and_mixes(self):
        """SplitMix with its authors' step from state 0, and from 1234567: published first answers."""
        for start, answers in [(0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]), (1234567, [6457827717110365317])]:
            stream = new_stream()
            stream[streams._STATE], stream[streams._STEP] = start, 0x9E3779B97F4A7C15
            assert [int(random_bits(stream)) for _ in answers] == answers

    @pytest.mark.parametrize("bits", [0, 1, 2**64 - 1, 2**32 - 1, 0xAAAAAAAAAAAAAAAA, 0x0123456789ABCDEF])
    def test_steps_are_odd_and_restless(self, bits):
        step = int(odd_step(np.uint64(bits)))
        assert step % 2 == 1
        assert (step ^ step >> 1).bit_count() >= 24


class TestPlaces:
    def test_parts_of_a_tick_do_not_touch(self):
        values = [0, 1, 255, 2**24 - 1, 2**32 - 1]
        ticks = {int(tick(sweep, block, step)) for sweep in values for block in (0, 1, 255) for step in values[:-1]}
        assert len(ticks) == len(values) * 3 * 4

    def test_keys_differ(self):
        keys = {int(stream_key(seed, chain)) for seed in range(200) for chain in range(50)}
        keys |= {int(stream_key(2**63 - 1, 0)), int(stream_key(2**32, 0))}
        assert len(keys) == 200 * 50 + 2

    def test_block_numbers_differ_and_fit(self):
        names = [name for name in vars(streams) if name.isupper() and not name.startswith("_")]
        numbers = [getattr(streams, name) for name in names]
        assert len(numbers) > 10
        assert len(set(numbers)) == len(numbers)
        assert all(0 <= number < 256 for number in numbers)

    def test_seeking_again_gives_the_same_numbers(self):
        stream = stream_at()
        for n_drawn in (0, 1, 2, 7):
            for _ in range(n_drawn):
                random_bits(stream)
            point(stream, 1, 0, 3, 4, 5, 6)
            again = np.empty(5)
            fill_uniform(stream, again)
            assert (again == uniforms(5)).all()

    def test_every_coordinate_makes_another_stream(self):
        n = 4096
        base = {"seed": 1, "chain": 0, "sweep": 3, "block": 4, "step": 5, "entity": 6}
        moved = [uniforms(n)] + [uniforms(n, **{name: value + 1}) for name, value in base.items()]
        moved += [uniforms(n, **{name: value + 128}) for name, value in base.items()]
        for a, b in combinations(moved, 2):
            assert not np.intersect1d(a, b).size
            assert correlation(a, b) < STANDARD_ERRORS / np.sqrt(n)
            assert correlation(a[1:], b[:-1]) < STANDARD_ERRORS / np.sqrt(n - 1)

    def test_neighbouring_entities_are_independent(self):
        """The first draw of entities 0, 1, 2, … is itself a stream of uniform numbers."""
        n = 50_000
        out = np.empty(n)
        fill_first_uniform(1, out)
        assert stats.kstest(out, "uniform").pvalue > LOWEST_P
        for lag in (1, 2, 3, 64):
            assert correlation(out[lag:], out[:-lag]) < STANDARD_ERRORS / np.sqrt(n - lag)


class TestBranches:
    def test_pairs_are_independent(self):
        """Draws of pairs are uniform, all different, and uncorrelated along entities, twigs, draws and diagonals."""
        out = np.empty((300, 400, 3))
        fill_branches(1, out)
        assert np.unique(out).size == out.size
        assert stats.kstest(out[:, :, 0].ravel(), "uniform").pvalue > LOWEST_P
        assert stats.kstest(out.ravel(), "uniform").pvalue > LOWEST_P
        for lags in (
            (0, 1, 0),
            (0, 2, 0),
            (0, 64, 0),
            (1, 0, 0),
            (1, 1, 0),
            (0, 0, 1),
            (0, 1, 1),
            (0, 1, 2),
            (1, 1, 1),
        ):
            here = out[tuple(slice(lag, None) for lag in lags)]
            there = out[tuple(slice(None, -lag or None) for lag in lags)]
            assert correlation(here.ravel(), there.ravel()) < STANDARD_ERRORS / np.sqrt(here.size)

    def test_every_entity_and_every_twig_is_uniform(self):
        out = np.empty((200, 200, 1))
        fill_branches(2, out)
        for table in (out[:, :, 0], out[:, :, 0].T):
            p = np.array([stats.kstest(row, "uniform").pvalue for row in table])
            assert stats.kstest(p, "uniform").pvalue > LOWEST_P


class TestUniform:
    def test_law(self):
        draws = uniforms(200_000)
        assert stats.kstest(draws, "uniform").pvalue > LOWEST_P
        for lag in (1, 2, 5):
            assert correlation(draws[lag:], draws[:-lag]) < STANDARD_ERRORS / np.sqrt(draws.size - lag)

    @pytest.mark.parametrize("bits", [0, 1, 2**11 - 1, 2**63, 2**64 - 2**12, 2**64 - 1])
    def test_strictly_between_zero_and_one(self, bits):
        assert 0.0 < to_unit(np.uint64(bits)) < 1.0


class TestIntegers:
    @pytest.mark.parametrize("limit", [1, 2, 7, 24, 1000])
    def test_below_is_uniform(self, limit):
        out = np.empty(100_000, np.int64)
        fill_below(stream_at(entity=limit), limit, out)
        counts = np.bincount(out, minlength=limit)
        assert counts.size == limit
        assert limit == 1 or stats.chisquare(counts).pvalue > LOWEST_P

    @pytest.mark.parametrize("limit", [1, 3, 10, 2**20])
    def test_below_never_reaches_its_limit(self, limit):
        assert int(to_unit(np.uint64(2**64 - 1)) * limit) < limit

    def test_shuffle_is_uniform_over_orders(self):
        counts = np.zeros(4**4, np.int64)
        count_orders(stream_at(), False, 48_000, counts)
        assert counts.sum() == counts[SPELT].sum() == 48_000
        assert stats.chisquare(counts[SPELT]).pvalue > LOWEST_P

    def test_chi_square_sees_a_biased_shuffle(self):
        """The planted bug: exchange with any place instead of those not yet settled."""
        counts = np.zeros(4**4, np.int64)
        count_orders(stream_at(), True, 48_000, counts)
        assert stats.chisquare(counts[SPELT]).pvalue < 1e-12

    @pytest.mark.parametrize("n", [0, 1, 2, 50])
    def test_shuffle_keeps_the_values(self, n):
        values = np.arange(n)
        shuffle(stream_at(), values)
        assert sorted(values.tolist()) == list(range(n))
