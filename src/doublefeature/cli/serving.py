"""Serve a model, make keys for it, and take users out of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from doublefeature.cli.options import Model, User
from doublefeature.cli.output import say
from doublefeature.errors import InputError, SettingsError, show


class Role(StrEnum):
    """What a key may do."""

    READ = "read"
    WRITE = "write"


def serve(
    model: Model,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others can reach needs --keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    database: Annotated[
        str | None,
        typer.Option(
            envvar="DOUBLEFEATURE_DATABASE",
            help="Where ratings go: postgresql://… or sqlite:///FILE; default: a file beside the model.",
        ),
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys made by new-key.")] = None,
    rate: Annotated[
        float, typer.Option(min=0.1, help="Requests a second that one key, or one address, may send.")
    ] = 500,
    workers: Annotated[int, typer.Option(min=1, help="Threads that compute answers.")] = 2,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait for them; more get 503.")] = 8,
) -> None:
    """Serve a model: a REST API with its description, and a page to try it and look into it."""
    from doublefeature.server.keys import read_keys
    from doublefeature.server.serving import serve as run
    from doublefeature.server.settings import Settings

    settings = Settings(
        host=host,
        port=port,
        database=database,
        keys=() if keys is None else read_keys(keys),
        rate=rate,
        burst=max(1, round(2 * rate)),
        workers=workers,
        queue=queue,
    )
    run(model, settings, lambda address: say(f"open {address} (API: {address}docs.html; end with Ctrl-C)"))


def new_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom the key is for.")],
    keys: Annotated[Path, typer.Option(help="File of keys; made if it is not there.")],
    role: Annotated[
        Role, typer.Option(help="What the key may do: ask, or also change ratings and models.")
    ] = Role.READ,
) -> None:
    """Make an API key: it is printed once, and only its hash is kept."""
    from doublefeature.server.keys import Key
    from doublefeature.server.keys import new_key as make

    try:
        Key(name, role.value, "0" * 64)
    except SettingsError:
        letters = "up to 60 letters, digits, dots, dashes and underscores"
        raise InputError(f"{show(name)} is no name for a key. Use {letters}.") from None
    if keys.is_dir():
        raise InputError(f"{keys}: this is a folder. Give a file for the keys.")
    typer.echo(make(keys, name, role.value))


def forget(model: Model, user: User) -> None:
    """Remove a user from a model folder for good: ratings, id, and every stored draw."""
    from doublefeature.posterior.forgetting import forget as remove
    from doublefeature.posterior.store import ModelFolder
    from doublefeature.recommender import DoubleFeature
    from doublefeature.report.card import write_card
    from doublefeature.sharded import check_whole

    check_whole(model, "made to forget a user")
    ids = ModelFolder.open(model).ratings
    remove(model, user if ids.has_user(user) else _as_number(user))
    write_card(DoubleFeature.load(model), model)
    say(f"the user is gone from {model}; its report, if it had one, was removed: write it again with `report`")


def _as_number(text: str) -> str | int:
    return int(text) if text.removeprefix("-").isdecimal() else text
