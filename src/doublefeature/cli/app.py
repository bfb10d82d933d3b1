"""The application: its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from doublefeature._version import __version__
from doublefeature.cli import answers, asking, comparing, data, evaluating, fitting, inspecting, serving, studying

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
