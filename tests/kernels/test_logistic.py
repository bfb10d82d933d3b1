import numpy as np
import pytest

from doublefeature.kernels.logistic import WeightPrior, gather_weights, newton_weights, weights_log_target

PRIORS = (WeightPrior(True, 0.0, 1.0, 0.3), WeightPrior(False, -1.4, 0.8, 0.5))


def rows(n_rows, n_traits, seed=0):
    rng = np.random.default_rng([seed, n_rows, n_traits])
    weights = 0.4 * rng.normal(size=n_traits + 1)
    return rng.normal(size=(n_rows, n_traits)), rng.random(n_rows), weights


@pytest.mark.parametrize("prior", PRIORS, ids=("users", "items"))
@pytest.mark.parametrize("n_rows", range(10))
def test_precision_and_slope_are_those_of_the_formula(prior, n_rows):
    """Rows are added four at a time; what is left over must not be lost, nor added twice."""
    traits, members, weights = rows(n_rows, 3)
    precision, slope = np.zeros((4, 4)), np.zeros(4)
    gather_weights(traits, members, weights, prior, (precision, slope))
    columns = np.hstack([np.ones((n_rows, 1)), traits])
    rate = 1.0 / (1.0 + np.exp(-columns @ weights))
    wanted = np.eye(4) / prior.sd**2
    downhill = -weights / prior.sd**2
    at_zero = 1.0 / (1.0 + np.exp(-weights[0]))
    wanted[0, 0] = at_zero * (1.0 - at_zero) if prior.buffet else 1.0 / prior.spread**2
    downhill[0] = -at_zero if prior.buffet else (prior.centre - weights[0]) / prior.spread**2
    wanted += (columns * (rate * (1.0 - rate))[:, None]).T @ columns
    np.testing.assert_allclose(np.tril(precision), np.tril(wanted), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slope, downhill + columns.T @ (members - rate), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("prior", PRIORS, ids=("users", "items"))
def test_newton_ends_at_the_mode(prior):
    traits, members, _ = rows(41, 3, seed=1)
    inside = (members < 0.4).astype(np.uint8)
    mode = np.zeros(4)
    newton_weights(traits, inside.astype(np.float64), mode, prior, 8)
    best = weights_log_target(traits, inside, mode, prior)
    for step in 0.1 * np.vstack([np.eye(4), -np.eye(4)]):
        assert weights_log_target(traits, inside, mode + step, prior) < best
