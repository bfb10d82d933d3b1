"""Served answers are the library's, and the same request has the same bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from doublefeature import DoubleFeature

API = "/api/v1"


def check_answers(client, model: DoubleFeature, count: int, seed: int = 0) -> int:
    """Compare served answers with the library's; return how many were compared."""
    rng = np.random.default_rng(seed)
    ratings = model.ratings_
    compared = 0
    while compared < count:
        user = int(ratings.users[rng.integers(ratings.n_users)])
        rank_by = str(rng.choice(["mean", "lower", "at_least", "thompson"]))
        served = client.get(f"{API}/users/{user}/recommendations?n=5&rank_by={rank_by}&seed=7").json()["items"]
        own = model.recommend(user, 5, rank_by=rank_by, seed=7)
        assert [row["item"] for row in served] == [row.item for row in own]
        same(served, [row._asdict() for row in own])
        items = rng.choice(ratings.n_items, 4, replace=False).tolist()
        history = {int(item): int(rng.integers(1, 6)) for item in items}
        body = {"ratings": [{"item": item, "rating": level} for item, level in history.items()], "n": 5}
        folded = model.fold_in(history)
        served = client.post(f"{API}/recommendations", json=body).json()["items"]
        same(served, [row._asdict() for row in folded.recommend(5)])
        assert not {row["item"] for row in served} & set(items)
        pairs = [(user, int(item)) for item in items]
        served = client.post(f"{API}/predictions", json={"pairs": [{"user": u, "item": i} for u, i in pairs]}).json()
        proba = np.array([row["proba"] for row in served["pairs"]])
        assert np.abs(proba - model.predict(pairs).proba).max() <= 1e-9
        assert np.abs(proba.sum(axis=1) - 1.0).max() <= 1e-9
        compared += len(pairs) + 2
    return compared


def same(served: list[dict[str, object]], own: list[dict[str, object]]) -> None:
    """Raise unless rows are equal to 1e-9."""
    assert len(served) == len(own)
    for left, right in zip(served, own, strict=True):
        assert left["item"] == right["item"]
        for key in ("mean", "sd", "at_least", "proba", "lower", "upper"):
            assert np.abs(np.array(left[key]) - np.array(right[key])).max() <= 1e-9, key


def test_served_answers_equal_the_library_s(numbers, number_folder):
    client, _ = numbers
    assert check_answers(client, DoubleFeature.load(number_folder), 120) >= 120


def test_a_wrong_table_would_be_seen(numbers, number_folder):
    client, service = numbers
    while service.holder.current.warm < 1.0:
        pass
    service.holder.current._table[:] = service.holder.current._table[::-1].copy()
    with pytest.raises(AssertionError):
        check_answers(client, DoubleFeature.load(number_folder), 60)


def test_answers_before_and_after_the_table_is_filled_are_the_same_bytes(numbers):
    client, service = numbers
    loaded = service.holder.current
    while loaded.warm < 1.0:
        pass
    warm = client.get(f"{API}/users/5/recommendations").content
    loaded._ready = 0
    assert client.get(f"{API}/users/5/recommendations").content == warm


def test_the_same_request_has_the_same_bytes(numbers, open_client, number_folder):
    client, _ = numbers
    other, _ = open_client(number_folder, name="model")
    body = {"ratings": [{"item": 3, "rating": 5}, {"item": 9, "rating": 1}]}
    turned = {"ratings": body["ratings"][::-1]}
    for path, sent in (("recommendations", {}), ("explanations", {"item": 4}), ("questions", {"n": 4})):
        answers = [
            one.post(
                f"{API}/{path}", content=json.dumps({**about, **sent}), headers={"Content-Type": "application/json"}
            )
            for one in (client, other)
            for about in (body, turned)
        ]
        assert len({answer.content for answer in answers}) == 1
    paths = [
        f"{API}/{path}" for path in ("model", "features", "items/3", "users/3", "model/diagnosis", "model/quality")
    ]
    for path in paths:
        assert client.get(path).content == other.get(path).content == client.get(path).content
