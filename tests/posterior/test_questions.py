"""What a rating would tell about a user."""

import numpy as np

from doublefeature.posterior.predict import levels_in_draw
from doublefeature.posterior.questions import what_is_open
from tests.posterior import make_posterior

VALUES = np.arange(1.0, 6.0)


def information_gain(posterior, users, items):
    return what_is_open(posterior, users, items, VALUES).gain


def entropy(chances):
    return -sum(chance * np.log(chance) for chance in chances if chance > 0.0)


def by_hand(posterior, users, items):
    """Mutual information of rating and copy in each draw, from their joint table, averaged over draws."""
    out = []
    for item in items:
        told = []
        for draw in posterior:
            proba = levels_in_draw(draw, posterior.base, users, np.full(users.size, item), posterior.scales)
            joint = proba / users.size
            independent = joint.sum(axis=0) * joint.sum(axis=1)[:, None]
            told.append(
                sum(p * np.log(p / q) for p, q in zip(joint.ravel(), independent.ravel(), strict=True) if p > 0)
            )
        out.append(np.mean(told) * users.size / (users.size - 1))
    return np.array(out)


def test_mutual_information():
    posterior = make_posterior(3, draws=5, features=(5, 3, 9))
    users, items = np.arange(6), np.array([0, 2, 5])
    assert np.allclose(information_gain(posterior, users, items), by_hand(posterior, users, items), atol=1e-12)


def test_mixing_draws_would_be_seen():
    """Copies of one user who is the same in every copy leave nothing to tell, however much draws differ."""
    posterior = make_posterior(3, draws=5, features=(5, 3, 9))
    assert np.allclose(information_gain(posterior, np.zeros(4, np.int64), np.arange(7)), 0.0, atol=1e-12)
    mixed = np.mean(
        [levels_in_draw(draw, 2.5, np.zeros(1, np.int64), np.zeros(1, np.int64))[0] for draw in posterior], 0
    )
    each = [levels_in_draw(draw, 2.5, np.zeros(1, np.int64), np.zeros(1, np.int64))[0] for draw in posterior]
    assert entropy(mixed) - np.mean([entropy(one) for one in each]) > 0.01


def test_the_share_that_few_copies_show():
    """The mean over choices of S copies is near the gain from all copies; without the correction it is not."""
    rng = np.random.default_rng(0)
    posterior = make_posterior(8, draws=1, features=(4,), users=400)
    everyone = information_gain(posterior, np.arange(400), np.arange(7))
    few = np.stack([information_gain(posterior, rng.permutation(400)[:8], np.arange(7)) for _ in range(400)])
    error = few.std(axis=0) / np.sqrt(400)
    corrected, plain = few.mean(axis=0), few.mean(axis=0) * 7 / 8
    assert np.abs(corrected / everyone - 1.0).max() < 0.06
    assert ((everyone - plain) / error > 4.0).any()


def test_blocks_of_items():
    posterior = make_posterior(2, draws=2, items=30)
    users = np.arange(9).repeat(2_000)
    whole = information_gain(posterior, users, np.arange(30))
    assert np.allclose(whole[7], information_gain(posterior, users, np.array([7]))[0])


def test_spread_of_the_expected_rating():
    posterior = make_posterior(3, draws=4, features=(5, 3, 9))
    users, items = np.arange(6), np.array([0, 2, 5])
    found = what_is_open(posterior, users, items, VALUES).spread
    for place, item in enumerate(items):
        variances = []
        for draw in posterior:
            proba = levels_in_draw(draw, posterior.base, users, np.full(users.size, item), posterior.scales)
            means = [sum(p * level for p, level in zip(row, VALUES, strict=True)) for row in proba]
            variances.append(np.var(means, ddof=1))
        assert np.isclose(found[place], np.sqrt(np.mean(variances)), atol=1e-12)
    assert np.allclose(what_is_open(posterior, np.zeros(4, np.int64), items, VALUES).spread, 0.0, atol=1e-12)
