"""Ratings sent to the service, kept in SQLite or PostgreSQL: on the disk before anybody is told so.

A rating that was taken back is a row without a rating, because the model may have learnt from it. Of a forgotten user
nothing stays but a salted hash, so that a refit leaves out what the original ratings say of them. Ids are kept as
JSON in ASCII: whole numbers and texts cannot be mixed up, and any database can hold them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Hashable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

from doublefeature.errors import EnvironmentProblem, InputError, MissingExtraError, StoreError, show
from doublefeature.levels import Level

try:
    import sqlalchemy as sa
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
except ImportError:
    raise MissingExtraError("a database of ratings", "server") from None

Changes = dict[Hashable, Level | None]
"""Ratings by item; None: taken back."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE ratings (user_id TEXT NOT NULL, item_id TEXT NOT NULL, rating TEXT, changed_at TEXT NOT NULL, "
        "PRIMARY KEY (user_id, item_id))",
    ),
    (
        "CREATE TABLE forgotten (digest TEXT NOT NULL PRIMARY KEY)",
        "CREATE TABLE facts (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    ),
)
"""What turns an empty database into version 1, that into version 2, …; never changed, only added to."""

_LOCK = 0x646F75626C65  # PostgreSQL's advisory lock while tables are made
_PUT = sa.text(
    "INSERT INTO ratings (user_id, item_id, rating, changed_at) VALUES (:user, :item, :rating, :now) "
    "ON CONFLICT (user_id, item_id) DO UPDATE SET rating = excluded.rating, changed_at = excluded.changed_at"
)
_OF_USER = sa.text("SELECT item_id, rating FROM ratings WHERE user_id = :user ORDER BY item_id")
_ALL = sa.text("SELECT user_id, item_id, rating FROM ratings ORDER BY user_id, item_id")
_DELETE = sa.text("DELETE FROM ratings WHERE user_id = :user")
_REMEMBER = sa.text("INSERT INTO forgotten (digest) VALUES (:digest) ON CONFLICT (digest) DO NOTHING")


class Storage:
    """The database of ratings; safe to use from several threads."""

    def __init__(self, address: str) -> None:
        self._engine = _engine(address)
        self._shown = self._engine.url.render_as_string(hide_password=True)
        self._refusals = (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error)
        self._of_user = _OF_USER.compile(dialect=self._engine.dialect)
        with self._problems():
            self._migrate()
        self._salt = self._find_salt()

    @property
    def is_file(self) -> bool:
        """Whether the database is a file on this machine: looking something up never waits for anybody."""
        return self._engine.dialect.name == "sqlite"

    def put(self, user: Hashable, item: Hashable, rating: Level | None) -> None:
        """Keep a rating, or with None that it was taken back; when this returns it is on the disk."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"user": _text(user), "item": _text(item), "rating": None if rating is None else _text(rating)}
        with self._problems(), self._engine.begin() as connection:
            connection.execute(_PUT, {**row, "now": now})

    def changes(self, user: Hashable) -> Changes:
        """Return what was sent for one user; every question asks for it, so the driver is used directly."""
        key = _text(user)
        with self._problems(), closing(self._engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(self._of_user.string, (key,) if self._of_user.positional else {"user": key})
            rows = cursor.fetchall()
        return {json.loads(item): None if rating is None else json.loads(rating) for item, rating in rows}

    def all_changes(self) -> list[tuple[Hashable, Hashable, Level | None]]:
        """Return everything that was sent: user, item and rating, None where it was taken back."""
        with self._problems(), self._engine.connect() as connection:
            rows = connection.execute(_ALL).all()
        return [(json.loads(u), json.loads(i), None if r is None else json.loads(r)) for u, i, r in rows]

    def forget(self, user: Hashable) -> int:
        """Remove all that was sent for a user, for good, and return how many rows that were."""
        with self._problems():
            with self._engine.begin() as connection:
                found = connection.execute(_DELETE, {"user": _text(user)}).rowcount
                connection.execute(_REMEMBER, {"digest": self._digest(user)})
            self._wipe()
        return int(found)

    def forgotten(self, users: list[Hashable]) -> set[Hashable]:
        """Return which of these users have been forgotten."""
        with self._problems(), self._engine.connect() as connection:
            digests = set(connection.execute(sa.text("SELECT digest FROM forgotten")).scalars())
        return {user for user in users if self._digest(user) in digests} if digests else set()

    def check(self) -> None:
        """Raise unless the database answers."""
        with self._problems(), self._engine.connect() as connection:
            connection.execute(sa.text("SELECT 1")).all()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _digest(self, user: Hashable) -> str:
        return hashlib.sha256(f"{self._salt} {_text(user)}".encode()).hexdigest()

    def _find_salt(self) -> str:
        insert = sa.text("INSERT INTO facts (name, value) VALUES ('salt', :value) ON CONFLICT (name) DO NOTHING")
        with self._problems(), self._engine.begin() as connection:
            connection.execute(insert, {"value": secrets.token_hex(16)})
            return str(connection.execute(sa.text("SELECT value FROM facts WHERE name = 'salt'")).scalar_one())

    def _wipe(self) -> None:
        """Let no copy of a removed row linger where the database keeps old pages."""
        if self._engine.dialect.name == "sqlite":
            raw = self._engine.raw_connection()
            try:
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                raw.close()
        else:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("VACUUM ratings"))

    def _migrate(self) -> None:
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            connection.execute(sa.text("CREATE TABLE IF NOT EXISTS migrations (number INTEGER NOT NULL PRIMARY KEY)"))
            done = connection.execute(sa.text("SELECT MAX(number) FROM migrations")).scalar() or 0
            if done > len(MIGRATIONS):
                raise StoreError(f"database {self._shown} was made by a newer doublefeature. Upgrade to use it.")
            for number, statements in enumerate(MIGRATIONS[done:], done + 1):
                for statement in statements:
                    connection.execute(sa.text(statement))
                connection.execute(sa.text("INSERT INTO migrations (number) VALUES (:number)"), {"number": number})

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """Turn what the database refuses into one line without passwords or data."""
        try:
            yield
        except self._refusals as problem:
            kind = type(getattr(problem, "orig", None) or problem).__name__
            raise EnvironmentProblem(
                f"database {self._shown} cannot be used ({kind}). Check that it runs and may be written to."
            ) from problem


def _engine(address: str) -> sa.Engine:
    """Return an engine that keeps its promises: SQLite flushes at every commit, PostgreSQL checks connections."""
    wrong = InputError("the database must be given as sqlite:///FILE or postgresql://USER@HOST/NAME.")
    try:
        url = sa.make_url(address)
    except ArgumentError:
        raise wrong from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise InputError(f"databases of kind {show(url.drivername)} are not supported. Use sqlite or postgresql.")
    if url.get_backend_name() == "sqlite" and (url.host or url.database in (None, "", ":memory:")):
        raise wrong
    try:
        if url.get_backend_name() == "postgresql":
            return sa.create_engine(url, pool_size=8, max_overflow=8, pool_pre_ping=True, pool_timeout=5)
        engine = sa.create_engine(url, pool_size=8, max_overflow=8, pool_timeout=5)
    except (ImportError, NoSuchModuleError):
        raise MissingExtraError("a PostgreSQL database", "server") from None
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "secure_delete=ON", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _text(value: Hashable) -> str:
    return json.dumps(value)
