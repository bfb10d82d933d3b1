"""A deleted user is gone: from the database, the draws, the ids and every file of the folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from doublefeature import DoubleFeature, Schedule
from doublefeature.errors import EnvironmentProblem, InputError
from doublefeature.inference.fit import extend, fit_into
from doublefeature.model.state import members
from doublefeature.posterior import forgetting
from doublefeature.posterior.forgetting import draw_without, forget
from doublefeature.posterior.predict import predict_levels
from doublefeature.posterior.store import ModelFolder
from tests.server.conftest import tiny_ratings

NAME = "Zoë 🎬"


def traces_of(text: str, folder: Path) -> list[Path]:
    """Return the files under a folder in whose name or bytes a text occurs."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if text.encode() in file.read_bytes() or text in file.name]


@pytest.fixture
def folder(text_folder, tmp_path):
    return Path(shutil.copytree(text_folder, tmp_path / "model"))


class TestForget:
    def test_no_file_holds_the_id_any_more(self, folder):
        (folder / "report.html").write_text(f"a page about {NAME}")
        assert traces_of(NAME, folder.parent)
        forget(folder, NAME)
        assert traces_of(NAME, folder.parent) == []
        model = DoubleFeature.load(folder)
        assert not model.knows_user(NAME)
        assert model.ratings_.n_users == 29

    @pytest.mark.parametrize("which", ["number_folder", "text_folder"])
    def test_everybody_else_is_answered_as_before(self, which, request, tmp_path):
        source = request.getfixturevalue(which)
        copy = Path(shutil.copytree(source, tmp_path / "copy"))
        before = DoubleFeature.load(source)
        gone = before.ratings_.users[5]
        forget(copy, gone)
        after = DoubleFeature.load(copy)
        others = [user for user in before.ratings_.users if user != gone]
        pairs = [(user, item) for user in others for item in before.ratings_.items]
        assert np.abs(before.predict(pairs).proba - after.predict(pairs).proba).max() < 1e-14
        assert [after.ratings_.rated_items(user) for user in others] == [
            before.ratings_.rated_items(user) for user in others
        ]

    def test_kept_features_lose_the_user_only(self, folder, text_folder):
        before = DoubleFeature.load(text_folder)
        code = before.ratings_.user_code(NAME)
        left = np.delete(before.allocation_.user_members, code, axis=0)
        forget(folder, NAME)
        after = DoubleFeature.load(folder)
        assert np.array_equal(after.allocation_.user_members, left[:, left.any(axis=0)])

    def test_features_of_nobody_else_end(self, number_folder):
        model = DoubleFeature.load(number_folder)
        for draw in model.posterior_:
            alone = members(draw.user_words, np.arange(draw.n_features))
            for user in range(3):
                lost = (alone.sum(axis=0) == 1) & alone[user]
                found = draw_without(draw, user)
                assert found.n_features == draw.n_features - lost.sum()
                assert found.user_offset.size == draw.user_offset.size - 1

    def test_chains_go_on_afterwards(self, folder):
        forget(folder, NAME)
        opened = ModelFolder.open(folder)
        extend(opened, opened.schedule.sweeps + 4)
        assert fit_into(opened, threads=1)
        assert len(opened.posterior()) > 0

    def test_unknown_users_and_the_last_one_are_refused(self, folder, tmp_path):
        with pytest.raises(InputError, match="does not have"):
            forget(folder, "nobody")
        ratings = tiny_ratings(users=2).subset(np.arange(tiny_ratings(users=2).n_ratings) < 5)
        lone = tmp_path / "lone"
        schedule = Schedule(sweeps=4, warmup=2, thin=1, chains=1, threads=1)
        DoubleFeature(preset="paper", seed=1, schedule=schedule).fit(ratings, out=lone)
        for user in ratings.users[:-1]:
            forget(lone, user)
        with pytest.raises(InputError, match="no other user"):
            forget(lone, ratings.users[-1])

    def test_other_files_are_carried_over(self, folder):
        (folder / "notes.txt").write_text("mine")
        forget(folder, NAME)
        assert (folder / "notes.txt").read_text() == "mine"

    @pytest.mark.parametrize("moment", ["_write_without", "_change_places", "rmtree"])
    def test_a_break_leaves_a_whole_model_and_forgetting_again_finishes(self, folder, monkeypatch, moment):
        class Broken(BaseException):
            pass

        def fail(*_: object, **__: object) -> None:
            raise Broken

        with monkeypatch.context() as patch:
            patch.setattr(forgetting.shutil if moment == "rmtree" else forgetting, moment, fail)
            with pytest.raises(Broken):
                forget(folder, NAME)
        DoubleFeature.load(folder)
        if DoubleFeature.load(folder).knows_user(NAME):
            forget(folder, NAME)
        else:
            forgetting._finish_earlier(folder)
        assert traces_of(NAME, folder.parent) == []

    def test_without_an_exchange_the_folders_still_change_places(self, folder, monkeypatch):
        def no_library(*_: object, **__: object) -> None:
            raise OSError

        monkeypatch.setattr(forgetting.ctypes, "CDLL", no_library)
        forget(folder, NAME)
        assert not DoubleFeature.load(folder).knows_user(NAME)

    def test_a_row_left_behind_would_be_seen(self, text_folder):
        """Dropping the wrong row changes what others are told."""
        model = DoubleFeature.load(text_folder)
        draw = model.posterior_.draws[0]
        wrong = draw_without(draw, 0)
        users, items = np.arange(5, 25), np.zeros(20, np.int64)
        from dataclasses import replace

        right = predict_levels(replace(model.posterior_, draws=[draw]), users + 1, items)
        shifted = predict_levels(replace(model.posterior_, draws=[draw]), users, items)
        found = predict_levels(replace(model.posterior_, draws=[wrong]), users, items)
        assert np.array_equal(found, right)
        assert not np.array_equal(found, shifted)


class TestService:
    def test_deleting_a_user_searches_clean(self, texts, tmp_path):
        client, service = texts
        path = "/api/v1/users/Zo%C3%AB%20%F0%9F%8E%AC"
        assert client.put(f"{path}/ratings/Film%203", json={"rating": 5}).status_code == 200
        client.get(f"{path}/recommendations")
        old = service.holder.current.version
        told = client.delete(path).json()
        assert (told["ratings_removed"], told["was_in_model"]) == (1, True)
        assert told["model"] != old
        for shown in (NAME, NAME.encode("unicode_escape").decode(), "Zo\\u00eb"):
            assert traces_of(shown, tmp_path) == []
        assert client.get(path).status_code == 404
        assert client.delete(path).status_code == 404
        assert client.get("/api/v1/users/person-9/recommendations").status_code == 200
        assert NAME not in client.get("/api/v1/users?limit=200").text

    def test_a_user_of_the_database_alone_is_deleted_too(self, numbers):
        client, service = numbers
        client.put("/api/v1/users/777/ratings/2", json={"rating": 5})
        version = service.holder.current.version
        assert client.delete("/api/v1/users/777").json()["was_in_model"] is False
        assert service.holder.current.version == version
        assert client.get("/api/v1/users/777").status_code == 404

    @pytest.mark.parametrize("broken", ["doublefeature.server.routes.rating.forget", "storage"])
    def test_what_broke_off_is_finished_by_asking_again(self, texts, monkeypatch, broken):
        client, service = texts
        path = "/api/v1/users/Zo%C3%AB%20%F0%9F%8E%AC"

        def fail(*_: object) -> None:
            raise EnvironmentProblem("the disk is full.")

        with monkeypatch.context() as patch:
            if broken == "storage":
                patch.setattr(service.storage, "forget", fail)
            else:
                patch.setattr(broken, fail)
            assert client.delete(path).status_code == 503
        assert client.delete(path).status_code == 200
        assert service.storage.forgotten([NAME, "person-9"]) == {NAME}
        assert not service.holder.current.model.knows_user(NAME)
