"""Unit ratios of the full model's blocks, each with a planted bug."""

import math

import numpy as np

from tests.correctness.cases import random_case, random_graded_priors
from tests.correctness.conditionals import cutpoints
from tests.correctness.graded import conditionals, graded_weight, spreads, trait_weights, whole_graded_features
from tests.correctness.ratios import error, new_candidate


def cases(n_cases: int, seed: int = 5):
    rng = np.random.default_rng(seed)
    return [random_case(rng, draw_priors=random_graded_priors) for _ in range(n_cases)]


def test_weights_of_whole_features() -> None:
    pairs = [pair for case in cases(60) for pair in whole_graded_features(case)]
    assert sum(math.isfinite(truth) for _, truth in pairs) > 50
    assert max(error(*pair) for pair in pairs) < 1e-8


def test_weights_of_traits_and_private_births() -> None:
    pairs = [pair for case in cases(80) for pair in trait_weights(case)]
    assert len(pairs) > 40
    assert max(error(*pair) for pair in pairs) < 1e-8


def test_targets_of_cutpoints() -> None:
    pairs = [pair for case in cases(60) for pair in cutpoints(case)]
    assert len(pairs) > 20
    assert max(error(*pair) for pair in pairs) < 1e-9
    wrong = [pair for case in cases(60) for pair in cutpoints(case, power=-1.0)]
    assert max(error(*pair) for pair in wrong) > 1e-3


def test_a_weight_that_forgets_the_centre_is_seen() -> None:
    """The planted bug: θ kept at one value instead of summed over."""
    from tests.correctness.graded import centre_log_density, weigh

    wrong = []
    for case in cases(25):
        candidate = new_candidate(case.scene)
        used = weigh(case.scene, candidate, True, 8)
        truth = graded_weight(case, candidate, True, 8)
        if math.isfinite(truth) and candidate.items.any():
            lost = centre_log_density(case.parameters, candidate.shift[candidate.items.astype(bool)], 0.3)
            wrong.append(error(used, truth + lost))
    assert min(wrong) > 1e-3


def test_conditional_of_a_grade() -> None:
    rng = np.random.default_rng(3)
    pairs = [pair for _ in range(50) for pair in conditionals(rng)]
    assert max(error(*pair) for pair in pairs) < 1e-6


def test_spread_of_scales() -> None:
    rng = np.random.default_rng(4)
    pairs = [pair for _ in range(50) for pair in spreads(rng)]
    assert max(error(*pair) for pair in pairs) < 1e-9
