"""The database of ratings, on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3

import pytest

from doublefeature.errors import EnvironmentProblem, InputError, StoreError
from doublefeature.ratings import Ratings
from doublefeature.server.refitting import with_stored
from doublefeature.server.storage import MIGRATIONS, Storage


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ratings.sqlite'}"
    return request.getfixturevalue("postgres").fresh()


class TestStorage:
    def test_numbers_and_texts_stay_apart(self, address):
        storage = Storage(address)
        odd = ["7", 7, "a/b", "Zoë 🎬", "nul\x00", "'; DROP TABLE ratings; --"]
        for place, user in enumerate(odd):
            storage.put(user, "item", place + 1)
        assert [storage.changes(user) for user in odd] == [{"item": place + 1} for place in range(len(odd))]
        assert {user for user, _, _ in storage.all_changes()} == set(odd)
        storage.close()

    def test_the_last_rating_counts_and_can_be_taken_back(self, address):
        storage = Storage(address)
        storage.put("ann", "Alien", 3)
        storage.put("ann", "Alien", 5)
        assert storage.changes("ann") == {"Alien": 5}
        storage.put("ann", "Alien", None)
        assert storage.changes("ann") == {"Alien": None}
        storage.close()
        again = Storage(address)
        assert again.changes("ann") == {"Alien": None}
        again.close()

    def test_a_forgotten_user_leaves_a_salted_hash(self, address):
        storage = Storage(address)
        storage.put("ann", "Alien", 3)
        assert storage.forget("ann") == 1
        assert storage.changes("ann") == {}
        assert storage.forgotten(["ann", "bob"]) == {"ann"}
        assert "ann" not in str(storage.all_changes())
        storage.close()

    def test_a_refit_sees_changes_and_not_the_forgotten(self, address):
        ratings = Ratings.from_triples(["ann", "ann", "bob"], ["Alien", "Heat", "Alien"], [5, 4, 3])
        storage = Storage(address)
        assert with_stored(ratings, address)[0] is ratings
        storage.put("ann", "Heat", None)
        storage.put("bob", "Alien", 1)
        storage.put("cid", "Up", 2)
        storage.put("cid", "Heat", 99)
        merged, left_out = with_stored(ratings, address)
        assert left_out == 1
        assert {user: dict(merged.rated_items(user)) for user in merged.users} == {
            "ann": {"Alien": 5},
            "bob": {"Alien": 1},
            "cid": {"Up": 2},
        }
        storage.forget("bob")
        storage.close()
        merged, _ = with_stored(ratings, address)
        assert list(merged.users) == ["ann", "cid"]


class TestOpening:
    def test_old_databases_are_brought_up_to_date(self, tmp_path):
        file = tmp_path / "old.sqlite"
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE migrations (number INTEGER NOT NULL PRIMARY KEY)")
            connection.execute(MIGRATIONS[0][0])
            connection.execute("INSERT INTO migrations VALUES (1)")
            connection.execute("INSERT INTO ratings VALUES ('1', '2', '5', 'then')")
        connection.close()
        storage = Storage(f"sqlite:///{file}")
        assert storage.changes(1) == {2: 5}
        assert storage.forgotten([1]) == set()
        storage.close()

    def test_newer_databases_are_refused(self, tmp_path):
        address = f"sqlite:///{tmp_path / 'new.sqlite'}"
        Storage(address).close()
        with sqlite3.connect(tmp_path / "new.sqlite") as connection:
            connection.execute("INSERT INTO migrations VALUES (999)")
        connection.close()
        with pytest.raises(StoreError, match="newer"):
            Storage(address)

    @pytest.mark.parametrize("address", ["nonsense", "mysql://host/x", "sqlite://host/x/y"])
    def test_other_addresses_are_refused_in_one_line(self, address):
        with pytest.raises((InputError, EnvironmentProblem)) as told:
            Storage(address)
        assert "\n" not in str(told.value)

    def test_no_password_is_ever_shown(self):
        with pytest.raises(EnvironmentProblem) as told:
            Storage("postgresql://ann:opensesame@127.0.0.1:1/none?connect_timeout=1")
        assert "opensesame" not in str(told.value)

    def test_commits_reach_the_disk(self, tmp_path):
        storage = Storage(f"sqlite:///{tmp_path / 'x.sqlite'}")
        with storage._engine.connect() as connection:
            found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
        assert found == ["wal", 2]
        storage.close()
