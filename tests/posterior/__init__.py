"""Made-up draws for tests of what follows from draws."""

from __future__ import annotations

import numpy as np

from doublefeature.model.ordinal import level_cutpoints
from doublefeature.model.state import words_of
from doublefeature.posterior.draws import Draw, Posterior


def make_draw(rng, users=9, items=7, features=5, levels=5, *, sweep=0, user_offsets=True, item_offsets=True):
    n_words = max(1, -(-features // 64))
    return Draw(
        chain=0,
        sweep=sweep,
        log_likelihood=0.0,
        user_words=words_of(rng.random((users, features)) < 0.4, n_words),
        item_words=words_of(rng.random((items, features)) < 0.5, n_words),
        effect=rng.normal(0.0, 1.0, features),
        item_rate=rng.uniform(0.2, 0.6, features),
        item_offset=rng.normal(0.0, 0.7, items) * item_offsets,
        user_offset=rng.normal(0.0, 0.5, users) * user_offsets,
        user_scale=np.zeros(users, np.uint8),
        cutpoints=level_cutpoints(levels),
        hyper=np.array([rng.uniform(0.4, 0.9), 3.0, 0.2, 2.0, 0.7, 0.5, 0.4, 0.3, 0.6, 0.5]),
    )


def make_posterior(seed=0, draws=6, features=(5, 3, 0, 9, 70, 4), **sizes):
    """Return draws with different numbers of features, none and more than a word's 64 among them."""
    rng = np.random.default_rng(seed)
    each = [make_draw(rng, features=features[t % len(features)], sweep=t, **sizes) for t in range(draws)]
    return Posterior(base=sizes.get("levels", 5) / 2, draws=each)


def repeat_draw(draw, times, base=2.5):
    """Return a posterior of one draw many times over, each time with other strangers."""
    return Posterior(base=base, draws=[draw._replace(sweep=t) for t in range(times)])


SCALES = np.array([0.6, 1.0, 1.7])


def grade(draw, rng):
    """Return the draw with an effect for every membership of an item, noise scales of users and free cutpoints."""
    n_levels = draw.cutpoints.size - 1
    cutpoints = draw.cutpoints.copy()
    cutpoints[2:-2] = np.sort(rng.uniform(1.0, n_levels - 1.0, max(n_levels - 3, 0)))
    return draw._replace(
        item_effect=rng.normal(0.0, 1.5, int(np.bitwise_count(draw.item_words).sum())),
        graded=True,
        user_scale=rng.integers(0, SCALES.size, draw.user_offset.size).astype(np.uint8),
        cutpoints=cutpoints,
    )


def make_graded(seed=0, draws=6, features=(5, 3, 0, 9, 70, 4), **sizes):
    """Return graded draws whose users have noise scales of their own."""
    rng = np.random.default_rng(seed)
    plain = make_posterior(seed, draws, features, **sizes)
    return Posterior(plain.base, [grade(draw, rng) for draw in plain], scales=SCALES)
