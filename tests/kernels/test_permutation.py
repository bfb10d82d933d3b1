"""The order of rows in a file changes nothing; other names for users and items change no posterior summary."""

import numpy as np

import doublefeature as df
from doublefeature.inference.chain import run_chain
from doublefeature.studies.recovery import Design, simulate
from tests.correctness.tiny import batch_z

PRIORS = df.Priors(user_offsets=True, learn=("mass",))


def triples():
    full, _ = simulate(Design(users=15, items=12, tau=0.5), seed=8)
    users, items, levels = full.split(0.3, seed=1)[0].triples()
    return [f"u{code:02}" for code in users], [f"i{code:02}" for code in items], (levels + 1).tolist()


def draws_of(users, items, values, sweeps=60, seed=1):
    ratings = df.Ratings.from_triples(users, items, values, levels="1..5")
    schedule = df.Schedule(sweeps=sweeps, warmup=sweeps // 10, thin=1, threads=1)
    return list(run_chain(ratings, PRIORS, schedule, stream=(seed, 0)))


def test_the_order_of_rows_changes_no_bit(rng):
    users, items, values = triples()
    order = rng.permutation(len(users))
    one = draws_of(users, items, values)
    two = draws_of([users[j] for j in order], [items[j] for j in order], [values[j] for j in order])
    for first, second in zip(one, two, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_other_names_leave_the_posterior_as_it_is(rng):
    users, items, values = triples()
    new_user = dict(zip(sorted(set(users)), rng.permutation(sorted(set(users))), strict=True))
    new_item = dict(zip(sorted(set(items)), rng.permutation(sorted(set(items))), strict=True))
    renamed = [str(new_user[user]) for user in users], [str(new_item[item]) for item in items]

    def summaries(draws):
        rows = [(d.n_features, d.hyper[0], d.hyper[1], d.log_likelihood, d.item_offset.std()) for d in draws]
        return np.array(rows)[: len(rows) // 30 * 30].reshape(30, -1, 5).mean(axis=1)

    one = summaries(draws_of(users, items, values, 1_500, seed=1))
    two = summaries(draws_of(*renamed, values, 1_500, seed=2))
    error = two.std(axis=0, ddof=1) / np.sqrt(30)
    assert np.abs(batch_z(one, two.mean(axis=0), error)).max() < 4
