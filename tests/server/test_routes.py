"""Every route, asked as people would."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.server.conftest import IMAGE, SCRIPT, TITLES

API = "/api/v1"


class TestAsking:
    def test_a_known_user_gets_unseen_items_with_probabilities(self, numbers):
        client, service = numbers
        found = client.get(f"{API}/users/3/recommendations?n=4").json()
        seen = {row["item"] for row in client.get(f"{API}/users/3/ratings").json()["ratings"]}
        assert found["source"] == "posterior"
        assert len(found["items"]) == 4
        assert not seen & {row["item"] for row in found["items"]}
        for row in found["items"]:
            assert sum(row["proba"]) == pytest.approx(1.0, abs=1e-9)
            assert row["lower"] <= row["upper"]
        assert found["model"] == service.holder.current.version

    def test_ratings_sent_along_are_folded_in(self, numbers):
        client, _ = numbers
        high = [{"item": k, "rating": 5} for k in range(4)]
        found = client.post(f"{API}/recommendations", json={"ratings": high, "n": 20}).json()
        anybody = client.post(f"{API}/recommendations", json={"n": 20}).json()
        assert (found["source"], anybody["source"]) == ("fold-in", "prior")
        assert {row["item"] for row in found["items"]} == set(range(4, 20))
        assert found["items"][0]["mean"] > anybody["items"][0]["mean"]

    def test_allow_deny_and_ranking(self, numbers):
        client, _ = numbers
        body = {"ratings": [], "allow": [1, 2, 3], "deny": [2], "rank_by": "at_least", "level": 5}
        found = client.post(f"{API}/recommendations", json=body).json()
        assert {row["item"] for row in found["items"]} == {1, 3}
        assert found["level"] == 5

    @pytest.mark.parametrize("rank_by", ["mean", "lower", "at_least", "thompson"])
    def test_every_ranking_answers_for_known_and_folded(self, numbers, rank_by):
        client, _ = numbers
        assert client.get(f"{API}/users/1/recommendations?rank_by={rank_by}").status_code == 200
        body = {"ratings": [{"item": 1, "rating": 2}], "rank_by": rank_by}
        assert client.post(f"{API}/recommendations", json=body).status_code == 200

    def test_pairs_and_items(self, numbers):
        client, _ = numbers
        pairs = [{"user": 1, "item": 2}, {"user": 999, "item": 2}, {"user": 1, "item": 999}]
        rows = client.post(f"{API}/predictions", json={"pairs": pairs}).json()["pairs"]
        assert [(row["known_user"], row["known_item"]) for row in rows] == [(True, True), (False, True), (True, False)]
        body = {"user": 1, "items": [2]}
        assert client.post(f"{API}/predictions/items", json=body).json()["pairs"][0]["proba"] == rows[0]["proba"]

    def test_preference_explanation_and_questions(self, numbers):
        client, _ = numbers
        for about in ({"user": 1}, {"ratings": [{"item": 3, "rating": 4}]}, {}):
            assert client.post(f"{API}/questions", json=about).json()["doubt"] > 0.0
            told = client.post(f"{API}/preferences", json={**about, "a": 1, "b": 2}).json()
            assert told["above"] + told["level"] + told["below"] == pytest.approx(1.0)
            why = client.post(f"{API}/explanations", json={**about, "item": 5}).json()
            parts = [why["base"], why["item_offset"]["mean"], why["user_offset"]["mean"]]
            parts += [part["contribution"]["mean"] for part in why["features"]]
            assert sum(parts) == pytest.approx(why["score"]["mean"])
            asked = client.post(f"{API}/questions", json={**about, "n": 3}).json()["items"]
            assert len(asked) == 3
            assert asked[0]["gain"] >= asked[-1]["gain"]

    def test_texts_spell_numbers(self, numbers):
        client, _ = numbers
        sent = [client.post(f"{API}/predictions/items", json={"user": user, "items": [2]}).json() for user in (1, "1")]
        assert sent[0] == sent[1]


class TestRatings:
    def test_a_rating_is_stored_used_and_taken_back(self, numbers):
        client, _ = numbers
        before = client.get(f"{API}/users/3/recommendations").json()
        item = before["items"][0]["item"]
        stored = client.put(f"{API}/users/3/ratings/{item}", json={"rating": 1}).json()
        assert (stored["rating"], stored["used"]) == (1, True)
        after = client.get(f"{API}/users/3/recommendations").json()
        assert after["source"] == "fold-in"
        assert after["n_ratings"] == before["n_ratings"] + 1
        assert item not in {row["item"] for row in after["items"]}
        assert client.delete(f"{API}/users/3/ratings/{item}").json()["rating"] is None
        assert client.get(f"{API}/users/3/recommendations").json() == before

    def test_a_new_user_and_a_new_item_are_kept(self, numbers):
        client, _ = numbers
        assert client.get(f"{API}/users/777/recommendations").status_code == 404
        assert client.put(f"{API}/users/777/ratings/2", json={"rating": 5}).json()["used"]
        assert not client.put(f"{API}/users/777/ratings/888", json={"rating": 5}).json()["used"]
        rows = client.get(f"{API}/users/777/ratings").json()["ratings"]
        assert [(row["item"], row["known_item"]) for row in rows] == [(2, True), (888, False)]
        assert client.get(f"{API}/users/777/recommendations").json()["source"] == "fold-in"
        assert client.get(f"{API}/users/777").json()["in_model"] is False

    def test_who_took_everything_back_is_still_somebody(self, numbers):
        client, _ = numbers
        client.put(f"{API}/users/7001/ratings/2", json={"rating": 4})
        client.delete(f"{API}/users/7001/ratings/2")
        assert client.get(f"{API}/users/7001").status_code == 200
        found = client.get(f"{API}/users/7001/recommendations").json()
        assert (found["source"], found["n_ratings"]) == ("prior", 0)

    def test_what_does_not_fit_is_said_so(self, numbers):
        client, _ = numbers
        assert client.put(f"{API}/users/3/ratings/2", json={"rating": 9}).status_code == 409
        assert client.put(f"{API}/users/anna/ratings/2", json={"rating": 5}).status_code == 409
        assert client.delete(f"{API}/users/777/ratings/2").status_code == 404
        twice = [{"item": 1, "rating": 5}, {"item": 1, "rating": 4}]
        assert client.post(f"{API}/recommendations", json={"ratings": twice}).status_code == 409
        unknown = [{"item": 12345, "rating": 5}]
        assert client.post(f"{API}/recommendations", json={"ratings": unknown}).status_code == 409


class TestCatalogue:
    def test_features_items_users(self, numbers):
        client, service = numbers
        features = client.get(f"{API}/features").json()["features"]
        assert len(features) == len(service.holder.current.model.features_)
        for row in features:
            detail = client.get(f"{API}/features/{row['number']}").json()
            assert detail["feature"] == row
            assert len(detail["users"]) == row["n_users"]
        assert client.get(f"{API}/features/{len(features)}").status_code == 404
        blocks = client.get(f"{API}/features/blocks").json()
        assert (len(blocks["users"]), len(blocks["items"])) == (blocks["n_users"], blocks["n_items"])

    def test_search_finds_by_title_and_id(self, numbers):
        client, _ = numbers
        assert client.get(f"{API}/items?search=ALIE").json()["items"][0]["title"] == "Alien"
        assert client.get(f"{API}/items?search=zzz").json()["items"] == []
        assert client.get(f"{API}/items?limit=3&offset=18").json()["total"] == len(TITLES)
        assert client.get(f"{API}/users?search=29").json()["users"][0]["user"] == 29

    def test_an_exact_id_comes_first(self, numbers):
        client, _ = numbers
        assert client.get(f"{API}/users?search=2").json()["users"][0]["user"] == 2
        assert client.get(f"{API}/items?search=7").json()["items"][0]["item"] == 7

    def test_lists_and_details_count_alike(self, numbers):
        client, service = numbers
        assert service.holder.current.model.heldout_ is not None
        for row in client.get(f"{API}/users?limit=30").json()["users"]:
            assert client.get(f"{API}/users/{row['user']}").json()["n_ratings"] == row["n_ratings"]
        for row in client.get(f"{API}/items?limit=30").json()["items"]:
            assert client.get(f"{API}/items/{row['item']}").json()["n_ratings"] == row["n_ratings"]

    def test_item_pages_say_what_explanations_say(self, numbers):
        client, service = numbers
        model = service.holder.current.model
        effects = {
            (item, number): effect
            for number, one in enumerate(model.features_)
            for item, effect in zip(one.leading_items.tolist(), one.leading_effects.mean.tolist(), strict=True)
        }
        for item in range(4):
            told = client.get(f"{API}/items/{item}").json()
            why = client.get(f"{API}/users/3/explanations/{item}").json()
            assert told["offset"] == pytest.approx(why["item_offset"])
            for row in told["features"]:
                assert row["effect"] == effects.get((item, row["feature"]))

    def test_users_alike(self, numbers):
        client, _ = numbers
        found = client.get(f"{API}/users/2/similar?n=5").json()["users"]
        assert len(found) == 5
        assert 2 not in [row["user"] for row in found]
        assert all(-1.0 <= row["correlation"] <= 1.0 for row in found)
        assert client.get(f"{API}/users/999/similar").status_code == 404

    def test_unknown_ids_in_addresses_are_not_found(self, numbers):
        client, _ = numbers
        for path in (
            "items/abc", "items/999", "users/abc", "users/abc/recommendations", "users/abc/questions",
            "users/abc/ratings", "users/3/explanations/999", "users/3/explanations/abc", "items/", "users/3/",
        ):  # fmt: skip
            assert client.get(f"{API}/{path}").status_code == 404, path

    def test_unknown_ids_in_bodies_do_not_fit(self, numbers):
        client, _ = numbers
        assert client.post(f"{API}/explanations", json={"item": 999}).status_code == 409
        assert client.post(f"{API}/preferences", json={"a": 1, "b": 999}).status_code == 409

    def test_details(self, numbers):
        client, _ = numbers
        item = client.get(f"{API}/items/2").json()
        assert item["title"] == "Up"
        assert sum(row["count"] for row in item["counts"]) == item["n_ratings"]
        assert sum(item["predicted"]) == pytest.approx(1.0)
        assert len(client.get(f"{API}/items/2/similar?n=4").json()["items"]) == 4
        user = client.get(f"{API}/users/2").json()
        assert user["n_ratings"] == sum(row["count"] for row in user["counts"])
        assert client.get(f"{API}/items/999").status_code == 404

    def test_model_pages(self, numbers):
        client, _ = numbers
        info = client.get(f"{API}/model").json()
        assert info["levels"] == [1, 2, 3, 4, 5]
        assert client.get(f"{API}/model/card").json()["markdown"].startswith("# A doublefeature model")
        assert len(client.get(f"{API}/model/diagnosis").json()["traces"]) == 2
        assert client.get(f"{API}/model/quality").json()["n"] > 0


class TestOddIds:
    @pytest.mark.parametrize("user", ["../etc/passwd", "a/b", "Zoë 🎬", SCRIPT, "person-7"])
    def test_any_text_is_an_address(self, texts, user):
        client, _ = texts
        path = f"{API}/users/{quote(user, safe='')}"
        assert client.get(path).json()["user"] == user
        assert client.get(f"{path}/recommendations").json()["user"] == user
        for item in (IMAGE, "50% off/now?"):
            inner = quote(item, safe="")
            assert client.put(f"{path}/ratings/{inner}", json={"rating": 3}).json()["item"] == item
            assert client.get(f"{path}/explanations/{inner}").json()["item"] == item
            assert client.get(f"{API}/items/{inner}").json()["item"] == item
            assert client.delete(f"{path}/ratings/{inner}").status_code == 200

    def test_bytes_that_are_no_text_are_refused(self, texts):
        client, _ = texts
        assert client.get(f"{API}/users/%ff").status_code == 422
        assert client.get(f"{API}/users/{'x' * 1001}").status_code == 422
