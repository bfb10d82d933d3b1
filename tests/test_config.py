import json

import numpy as np
import pytest

from doublefeature.checks import check_seed
from doublefeature.config import Moves, Priors, Schedule, Sharding, preset
from doublefeature.errors import SettingsError
from doublefeature.model.state import build_model, empty_state


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Priors(mass=0.0), "mass must be above 0"),
        (lambda: Priors(mass=-1), "mass must be above 0"),
        (lambda: Priors(mass=float("nan")), "finite"),
        (lambda: Priors(item_rate=1.0), "strictly between 0 and 1"),
        (lambda: Priors(effect_sd="2"), "finite number"),
        (lambda: Priors(user_offsets=1), "True or False"),
        (lambda: Priors(learn=("tau",)), "cannot learn 'tau'"),
        (lambda: Priors(learn="mass"), "list of names"),
        (lambda: Priors(learn=("user_offset_sd",)), "user_offsets=True"),
        (lambda: Priors(learn=("item_rate",), item_rate_by_feature=True), "not both"),
        (lambda: Priors(effect_values=(1.0,)), "at least two"),
        (lambda: Priors.from_dict({"lamda": 3}), "unknown key 'lamda'"),
        (lambda: Moves(user_scan="both"), "'parallel' or 'serial'"),
        (lambda: Moves(offset_flips=2.0), "between 0 and 1"),
        (lambda: Moves(prior_singletons=False, collapsed_singletons=0.0, feature_moves=0), "no move can create"),
        (lambda: Schedule(sweeps=10, warmup=10), "no draw is left"),
        (lambda: Schedule(warmup=480), "below sweeps (480)"),
        (lambda: Schedule(sweeps=0, warmup=0), "at least 1"),
        (lambda: Schedule(chains=0), "at least 1"),
        (lambda: Schedule(thin=1.5), "integer"),
        (lambda: check_seed("7"), "integer"),
        (lambda: check_seed(1.0), "integer"),
        (lambda: check_seed(True), "integer"),
        (lambda: check_seed(-1), "at least 0"),
        (lambda: check_seed(2**63), "below 2^63"),
        (lambda: Priors(remainder_sd=1e200), "remainder_sd must lie between"),
        (lambda: preset("papper"), "unknown preset"),
        (lambda: Sharding(0), "at least 1"),
        (lambda: Sharding(2, merge="mean"), "'precision', 'draws' or 'paper'"),
        (lambda: Sharding(2, second_stage="none"), "'refresh' or 'paper'"),
        (lambda: Sharding(2, keep_share=1.5), "at most 1"),
        (lambda: Sharding(2, epsilon=0.0), "above 0"),
        (lambda: Sharding.from_dict({"shard": 3}), "unknown key 'shard'"),
    ],
)
def test_bad_settings_get_one_line(make, says):
    with pytest.raises(SettingsError) as caught:
        make()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        Priors(),
        Priors(user_offsets=True).with_everything_learnt(),
        Priors(effect_values=(-1.0, 1.0)),
        Moves(feature_moves=3),
        Schedule(threads=2),
        Sharding(15, merge="paper", second_stage="paper"),
    ],
)
def test_settings_survive_json(settings):
    assert type(settings).from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_numpy_integers_are_integers():
    assert check_seed(np.int64(7)) == 7


def test_the_paper_preset_is_the_paper():
    model = build_model(preset("paper"), 10, 5, 5)
    state = empty_state(preset("paper"), 10, 5, 5)
    assert model.base == 2.5
    assert state.cutpoints.tolist() == [-np.inf, 1, 2, 3, 4, np.inf]
    assert (model.noise_shape, model.noise_rate) == (5.0, 1.0)
    assert state.hyper.tolist() == [0.5, 3.0, 0.2, 2.0, 1.0, 0.5, 0.4, 0.3, 0.5, 0.3]
    assert not model.user_offsets
    assert not any((state.item_effect.size, state.user_grade.size, state.user_factor.size, model.item_buffet))


def test_spreads_grow_with_wide_scales():
    full = preset("full")
    for n_levels, wider in ((2, 1.0), (5, 1.0), (10, 1.0), (21, 2.1), (101, 10.1)):
        there = full.on_scale(n_levels)
        assert there.effect_sd == pytest.approx(wider * full.effect_sd)
        assert there.noise_rate == pytest.approx(wider**2 * full.noise_rate)
        assert there.trait_offset_sd == build_model(full, 3, 3, n_levels).offset_weight_sd
        assert there.trait_offset_sd == pytest.approx(wider * full.trait_offset_sd)
        assert there.user_scale_sd == full.user_scale_sd
        assert there.on_scale(n_levels) == there
        state, plain = empty_state(full, 3, 3, n_levels), empty_state(there, 3, 3, n_levels)
        assert state.hyper.tolist() == plain.hyper.tolist()
        assert state.hyper[0] == pytest.approx(wider * 0.8**0.5)
        assert build_model(full, 3, 3, n_levels).grade_sd_rate == build_model(there, 3, 3, n_levels).grade_sd_rate
    assert preset("paper").on_scale(100) == preset("paper")


def test_few_ratings_have_more_sweeps_unless_told():
    usual = Schedule(chains=8)
    assert [usual.on_ratings(n).n_sweeps for n in (1, 74_999, 75_000, 10**9)] == [960, 960, 480, 480]
    assert usual.on_ratings(10) == Schedule(sweeps=960, chains=8)
    assert usual.on_ratings(10).on_ratings(10**9).n_sweeps == 960
    told = Schedule(sweeps=480)
    assert told.on_ratings(10) is told


@pytest.mark.parametrize(("n_levels", "base"), [(2, 1.0), (5, 2.5), (10, 5.0)])
def test_cutpoints_follow_the_levels(n_levels, base):
    assert build_model(Priors(), 3, 3, n_levels).base == base
    assert empty_state(Priors(), 3, 3, n_levels).cutpoints[1:-1].tolist() == list(range(1, n_levels))
