"""The original ratings and those sent to a service since, put together for the next fit."""

from __future__ import annotations

from collections.abc import Hashable

from doublefeature.levels import Level, level_positions
from doublefeature.ratings import Ratings
from doublefeature.server.storage import Storage


def with_stored(ratings: Ratings, address: str) -> tuple[Ratings, int]:
    """Return the ratings changed by what a database holds, and how many changes were left out.

    Ratings of forgotten users are dropped, ratings taken back too; new users and items are added. Left out are ratings
    at levels that these ratings do not have. Timestamps are not kept.
    """
    storage = Storage(address)
    try:
        gone, changes = storage.forgotten(list(ratings.users)), storage.all_changes()
    finally:
        storage.close()
    if not gone and not changes:
        return ratings, 0
    users, items, levels = ratings.triples()
    table: dict[tuple[Hashable, Hashable], Level] = {
        (ratings.users[user], ratings.items[item]): ratings.levels[level]
        for user, item, level in zip(users.tolist(), items.tolist(), levels.tolist(), strict=True)
        if ratings.users[user] not in gone
    }
    left_out = 0
    for who, what, rating in changes:
        if rating is None:
            table.pop((who, what), None)
        elif level_positions([rating], ratings.levels)[0] < 0:
            left_out += 1
        else:
            table[who, what] = rating
    pairs = list(table)
    merged = Ratings.from_triples(
        [user for user, _ in pairs],
        [item for _, item in pairs],
        list(table.values()),
        levels=ratings.levels,
        source="the ratings and the database",
    )
    return merged, left_out
