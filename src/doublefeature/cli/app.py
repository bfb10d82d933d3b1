"""The application: its commands, and how errors leave it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from doublefeature._version import __version__
from doublefeature.cli import answers, asking, comparing, data, evaluating, fitting, inspecting, serving, studying
from doublefeature.errors import DoubleFeatureError

INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Recommendations from ordinal ratings that can say why and how sure.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"doublefeature {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    pass


_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Begin": (studying.demo, data.simulate),
    "Fit": (fitting.fit, fitting.resume),
    "Ask": (
        answers.predict,
        answers.recommend,
        answers.prefer,
        answers.explain,
        asking.ask,
        answers.top,
        answers.similar,
    ),
    "Judge": (evaluating.evaluate, comparing.compare),
    "Serve": (serving.serve, serving.new_key, serving.forget),
    "Look": (
        inspecting.features,
        inspecting.diagnose,
        inspecting.report,
        inspecting.export,
        inspecting.doctor,
    ),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.add_typer(data.app, name="data", rich_help_panel="Begin")
app.add_typer(studying.app, name="study", rich_help_panel="Look")


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"doublefeature: {message}", err=True)
    sys.exit(code)


def main() -> None:
    """Run the command line with one-line errors."""
    debug = "--debug" in sys.argv
    try:
        app()
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except DoubleFeatureError as error:
        if debug:
            raise
        _fail(" ".join(str(error).split()), error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        _fail(f"internal error, {type(error).__name__}: {error}. Run again with --debug and report it.", 1)
