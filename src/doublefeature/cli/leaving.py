"""How the command line ends: one line on stderr and an exit code, whatever went wrong."""

from __future__ import annotations

import os
import re
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

import typer

from doublefeature.cli.app import app
from doublefeature.cli.output import Interrupted
from doublefeature.errors import DoubleFeatureError, EnvironmentProblem, show

INTERRUPTED = 130
_PROGRAM = "doublefeature"
_GROUPS = ("data", "study")
_UsageError: Any = typer.BadParameter.__mro__[1]
_WORDS = (
    (r"greater than or equal to (?P<limit>\S+)$", "must be at least {limit}"),
    (r"less than or equal to (?P<limit>\S+)$", "must be at most {limit}"),
    (r"valid integer", "must be a whole number"),
    (r"valid number", "must be a number"),
    (r"is not one of (?P<limit>.+?)\.?$", "must be one of {limit}"),
)
"""What the parser says of a value, and how we say it."""


def run() -> None:
    """Run the command that was asked for."""
    try:
        code = app(standalone_mode=False, prog_name=_PROGRAM)
        sys.stdout.flush()
    except _UsageError as error:
        _refuse_usage(error)
    except Interrupted as stopped:
        _fail(str(stopped), INTERRUPTED, prefix="")
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", INTERRUPTED)
    except DoubleFeatureError as error:
        _fail(" ".join(str(error).split()), error.exit_code)
    except BrokenPipeError:
        _drop_output()
        sys.exit(0)
    except OSError as error:
        where = "the output" if error.filename is None else str(error.filename)
        _drop_output()
        reason = error.strerror or type(error).__name__
        _fail(f"{where}: cannot be read or written ({reason}).", EnvironmentProblem.exit_code)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(f"internal error, {what}. Run again with --debug and report it.", 1)
    if code == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    if code:
        sys.exit(code)


def _fail(message: str, code: int, prefix: str = f"{_PROGRAM}: ") -> NoReturn:
    if "--debug" in sys.argv and sys.exc_info()[0] is not None:
        traceback.print_exc()
    typer.echo(prefix + message, err=True)
    sys.exit(code)


def _drop_output() -> None:
    """Let nothing more be written to where nothing can be written, at the end of the process too."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_usage(error: Any) -> NoReturn:
    """Say what is wrong with the words of a command, on one line."""
    if type(error).__name__ == "NoArgsIsHelpError":
        if error.format_message():
            typer.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    command = error.ctx.command_path if error.ctx is not None else _command()
    told = _told(error)
    _fail(f"{told} See: {command} --help", error.exit_code, prefix=f"{command}: ")


def _command() -> str:
    """Return the command that was asked for, where the parser does not say it."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    return " ".join([_PROGRAM, *words[: 2 if words[:1] and words[0] in _GROUPS else 1]])


def _told(error: Any) -> str:
    kind, text = type(error).__name__, " ".join(str(error.format_message()).split())
    if kind == "NoSuchOption":
        meant = f" Did you mean {' or '.join(error.possibilities)}?" if error.possibilities else ""
        return f"there is no option {error.option_name}.{meant}"
    if found := re.fullmatch(r"No such command (.+?)\.?", text):
        return f"there is no command {found[1]}."
    if found := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.+)\)", text):
        return f"{found[1]} is too much."
    if found := re.fullmatch(r"Option '(.+)' (requires|does not take).+", text):
        return f"{found[1]} {'needs a' if found[2] == 'requires' else 'takes no'} value."
    if getattr(error, "param", None) is None:
        return text if text.endswith(".") else f"{text}."
    first = error.param.opts[0]
    name = max(error.param.opts, key=len) if first.startswith("-") else (error.param.metavar or first.upper())
    if kind == "MissingParameter":
        return f"{name} is missing."
    return f"{name} {_about_value(error)}."


def _about_value(error: Any) -> str:
    """Say what a value must be, and what was given."""
    message = str(error.message).rstrip(".")
    cause = error.__cause__
    given = f", got {show(cause.errors()[0]['input'])}" if hasattr(cause, "errors") else ""
    for pattern, words in _WORDS:
        if found := re.search(pattern, message):
            return words.format(**found.groupdict()).replace("'", "") + given.replace("'", "")
    return f"{message}{given}"
