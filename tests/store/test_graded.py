"""Folders of the full model: effects of single items, noise scales of users, free cutpoints; and older folders."""

import json

import numpy as np
import pytest

from doublefeature.errors import StoreError
from doublefeature.model.state import SCALES, members, words_of
from doublefeature.posterior.draws import draw_of
from doublefeature.posterior.manifest import VERSION
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.segments import decode_state, encode_state, sizes_of
from doublefeature.posterior.store import ModelFolder, draws_digest
from tests.store.cases import FULL, QuickDisk, every_sweep, full_posterior, parts, random_posterior, same, tiny_ratings
from tests.store.test_folder import refused, reseal, rewrite

FEATURES = [0, 1, 63, 64, 65, 130, 0, 128]
SEGMENT = "chain-0/segment-00000.safetensors"
RESUME = "chain-1/resume-00001.safetensors"


@pytest.fixture
def stored(tmp_path):
    """A folder with draws of none to 130 graded features, and what was put into it."""
    ratings = tiny_ratings()
    posterior = full_posterior(ratings, FEATURES, chains=2)
    model = parts(ratings=ratings, schedule=every_sweep(FEATURES, chains=2), priors=FULL)
    ModelFolder.save(tmp_path / "model", posterior, disk=QuickDisk(), **model)
    return tmp_path / "model", posterior


class TestRoundTrip:
    def test_draws_come_back_bit_by_bit(self, stored):
        path, posterior = stored
        found = ModelFolder.open(path).posterior()
        assert draws_digest(found) == draws_digest(posterior)
        assert np.array_equal(found.scales, SCALES)
        assert found.graded
        for one, two in zip(found, posterior, strict=True):
            assert same(one, two)
            assert one.item_effect.size == np.bitwise_count(one.item_words).sum()
        users, items = np.arange(12), np.arange(12) % 9
        assert np.array_equal(predict_levels(found, users, items), predict_levels(posterior, users, items))

    def test_the_card_says_how_items_differ(self, stored):
        assert "* spread of items around a feature's effect: median 0.4" in (stored[0] / "card.md").read_text()

    def test_the_state_to_go_on_from_is_the_last_draw(self, stored):
        path, posterior = stored
        for point, chain in zip(ModelFolder.open(path).resume_points, posterior.chains, strict=True):
            assert same(point.state, chain[-1].to_state())

    def test_the_digest_sees_the_last_bit_of_an_items_effect(self, stored):
        posterior = stored[1]
        effect = posterior.draws[5].item_effect.copy()
        effect.view(np.uint64)[-1] ^= np.uint64(1)
        digest = draws_digest(posterior)
        posterior.draws[5] = posterior.draws[5]._replace(item_effect=effect)
        assert draws_digest(posterior) != digest

    def test_states_with_features_in_scattered_slots(self, rng):
        ratings = tiny_ratings()
        posterior = full_posterior(ratings, [70])
        packed = posterior.draws[0].to_state()
        order = rng.permutation(128)
        inside = [members(words, order) for words in (packed.user_words, packed.item_words)]
        state = packed._replace(
            user_words=words_of(inside[0], 2),
            item_words=words_of(inside[1], 2),
            **{
                name: getattr(packed, name)[..., order]
                for name in ("active", "effect", "item_effect", "user_grade", "item_rate")
            },
        )
        sizes = sizes_of(FULL, ratings.n_users, ratings.n_items, ratings.n_levels)
        found = decode_state(encode_state(state), sizes, posterior.traces[0])
        assert same(found, state)
        assert not same(draw_of(found, 0, 1, 0.0).to_state(), state)

    def test_an_effect_without_a_membership_is_not_stored(self, stored):
        state = ModelFolder.open(stored[0]).resume_points[0].state
        outside = np.argwhere((state.item_effect == 0.0) & (state.active > 0))[0]
        state.item_effect[tuple(outside)] = 0.5
        with pytest.raises(StoreError, match="where nobody belongs"):
            encode_state(state)

    @pytest.mark.parametrize("graded", [True, False])
    def test_draws_of_another_model_are_refused(self, tmp_path, graded):
        ratings, features = tiny_ratings(), [2, 3]
        posterior = random_posterior(ratings, features) if graded else full_posterior(ratings, features)
        model = parts(ratings=ratings, schedule=every_sweep(features), **({"priors": FULL} if graded else {}))
        with pytest.raises(StoreError, match="item_effect"):
            ModelFolder.save(tmp_path / "model", posterior, disk=QuickDisk(), **model)


def one_grade_less(arrays):
    arrays["user_grade"] = arrays["user_grade"][:-1]


def longer(arrays):
    arrays["item_effect"] = np.append(arrays["item_effect"], 0.1)


def shorter(arrays):
    arrays["item_effect"] = arrays["item_effect"][:-1]


def spread_out(arrays):
    arrays["item_effect"] = arrays["item_effect"].reshape(1, -1)


def endless(arrays):
    arrays["item_effect"][3] = np.inf


def strange_scale(arrays):
    arrays["user_scale"].flat[0] = SCALES.size


def one_member_more(arrays):
    words = arrays["item_words"].reshape(-1)
    last = np.flatnonzero(words)[-1]
    words[last] &= words[last] - np.uint64(1)


def fewer_hyper(arrays):
    name = "hyper" if "hyper" in arrays else "trace.hyper"
    arrays[name] = np.ascontiguousarray(arrays[name][..., :5])


class TestRefusals:
    @pytest.mark.parametrize("file", [SEGMENT, RESUME])
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (longer, "more or fewer numbers"),
            (shorter, "more or fewer numbers"),
            (one_member_more, "more or fewer numbers"),
            (one_grade_less, "user_grade has more or fewer"),
            (spread_out, "does not fit"),
            (lambda arrays: arrays.pop("item_effect"), "missing"),
            (endless, "item_effect"),
            (strange_scale, "noise factor"),
            (fewer_hyper, "5 hyperparameters"),
        ],
    )
    def test_arrays(self, stored, file, change, reason):
        rewrite(stored[0], file, lambda arrays: None)
        ModelFolder.open(stored[0])
        rewrite(stored[0], file, change)
        assert reason in refused(stored[0])

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda m: m.update(scales=[1.0]), "noise scales of users"),
            (lambda m: m.update(scales=[*m["scales"][:-1], 9.0]), "noise scales of users"),
            (lambda m: m.update(scales=[]), "positive numbers"),
            (lambda m: m.update(scales=[1]), "positive numbers"),
            (lambda m: m.update(scales=[-1.0]), "positive numbers"),
            (lambda m: m.pop("scales"), "missing"),
            (lambda m: m.update(version=1), "not known"),
            (lambda m: m["priors"].update(graded=False, user_grades=False), "item_effect"),
            (lambda m: m["priors"].update(user_scales=False), "noise scales of users"),
        ],
    )
    def test_manifests(self, stored, change, reason):
        reseal(stored[0], change)
        assert reason in refused(stored[0])


def make_older(folder, new_keys):
    """Turn an ungraded folder into one of format version 1."""

    def trim(arrays):
        name = "hyper" if "hyper" in arrays else "trace.hyper"
        arrays[name] = np.ascontiguousarray(arrays[name][..., :6])

    for file in sorted(folder.glob("chain-*/*.safetensors")):
        rewrite(folder, file.relative_to(folder).as_posix(), trim)

    def change(manifest):
        manifest.update(version=1)
        del manifest["scales"]
        for key in new_keys:
            del manifest["priors"][key]

    reseal(folder, change)


class TestOlderFolders:
    NEW = ("graded", "grade_sd", "user_grades", "user_grade_sd", "user_scales", "user_scale_sd", "free_cutpoints")

    @pytest.fixture
    def older(self, tmp_path):
        ratings = tiny_ratings()
        posterior = random_posterior(ratings, FEATURES, chains=2)
        model = parts(ratings=ratings, schedule=every_sweep(FEATURES, chains=2))
        ModelFolder.save(tmp_path / "model", posterior, disk=QuickDisk(), **model)
        make_older(tmp_path / "model", self.NEW)
        return tmp_path / "model", posterior

    def test_they_are_read_as_what_they_are(self, older):
        folder = ModelFolder.open(older[0])
        assert draws_digest(folder.posterior()) == draws_digest(older[1])
        assert not folder.posterior().graded
        assert np.array_equal(folder.posterior().scales, [1.0])
        for point, chain in zip(folder.resume_points, older[1].chains, strict=True):
            assert same(point.state, chain[-1].to_state())

    def test_writing_makes_them_new(self, older):
        folder = ModelFolder.open(older[0])
        with folder.writing():
            folder.lengthen(30)
        assert json.loads((older[0] / "manifest.json").read_bytes())["version"] == VERSION
        assert draws_digest(ModelFolder.open(older[0]).posterior()) == draws_digest(older[1])

    def test_they_cannot_hold_what_they_did_not_know(self, older):
        reseal(older[0], lambda manifest: manifest["priors"].update(graded=True))
        assert "item_effect" in refused(older[0])
        reseal(older[0], lambda m: m["priors"].update(graded=True, learn=["mass", "item_rate", "grade_sd"]))
        assert "6 hyperparameters" in refused(older[0])
