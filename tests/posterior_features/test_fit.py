"""Estimates from chains that were really run."""

import numpy as np
import pytest

from doublefeature.config import Schedule
from doublefeature.inference.chain import sample
from doublefeature.posterior.alignment import Metric, match, pack_members
from doublefeature.posterior.features import aligner, estimate, paper_estimate, summarise
from doublefeature.studies.recovery import Design, simulate

METRIC = Metric(complement=False)


@pytest.fixture(scope="module")
def fitted():
    design = Design(users=40, items=30, tau=0.25)
    ratings, truth = simulate(design, seed=0)
    schedule = Schedule(sweeps=300, warmup=150, thin=5, chains=2, threads=1)
    return ratings, truth, sample(ratings, design.priors(), schedule, seed=1)


def recovered(truth, user_members, item_members, effect):
    """Share of the planted user and item memberships that the matching features of an estimate have."""
    planted = pack_members(truth.user_members, truth.item_members, truth.effect)
    partner = match(planted, pack_members(user_members, item_members, effect), METRIC).partner
    found = partner >= 0
    shares = []
    for members, there in ((truth.user_members, user_members), (truth.item_members, item_members)):
        shares.append((members[:, found] & there[:, partner[found]]).sum() / members.sum())
    return shares


@pytest.mark.parametrize("method", [estimate, paper_estimate])
def test_most_of_what_was_planted_is_found(fitted, method):
    _, truth, posterior = fitted
    found = method(posterior)
    users, items = recovered(truth, found.user_members, found.item_members, found.effect)
    assert users > 0.85
    assert items > 0.75
    assert abs(found.n_features - truth.n_features) <= 3


def test_check_sees_an_estimate_of_other_data(fitted, rng):
    _, truth, posterior = fitted
    found = estimate(posterior)
    users, items = rng.permutation(found.user_members), rng.permutation(found.item_members)
    assert min(recovered(truth, users, items, found.effect)) < 0.6


def test_large_features_recur_in_both_chains(fitted):
    ratings, _, posterior = fitted
    found = estimate(posterior)
    summaries = summarise(posterior, found, ratings)
    assert min(summaries[0].recurrence_by_chain.values()) > 0.9
    assert summaries[0].effect_95[0] <= summaries[0].effect_80[0] <= summaries[0].effect <= summaries[0].effect_80[1]
    assert summaries[0].n_ratings == summaries[0].users.size * summaries[0].items.size
    partner, swapped = aligner(posterior, found)(posterior.draws[0])
    assert np.isin(np.arange(3), partner).all()
    assert not swapped.any()
