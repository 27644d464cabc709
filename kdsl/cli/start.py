"""The commands, each imported when it is called, and how they end.

The exit code is 0 when all is well, 1 when what was asked about is wrong, 2 for a wrong call.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated

import typer

from kdsl.cli.console import fail, out
from kdsl.errors import KdslError
from kdsl.extras import MissingPackageError, missing_package

COMMANDS = {
    "demo": "kdsl.cli.demo",
    "check": "kdsl.cli.check",
    "plan": "kdsl.cli.inspect",
    "schema": "kdsl.cli.inspect",
    "peek": "kdsl.cli.peek",
    "produce": "kdsl.cli.produce",
    "lag": "kdsl.cli.lag",
    "doctor": "kdsl.cli.doctor",
    "diff": "kdsl.cli.diff",
    "apply": "kdsl.cli.diff",
    "verify": "kdsl.cli.verify",
    "run": "kdsl.cli.run",
    "ingest": "kdsl.cli.ingest",
    "export": "kdsl.cli.codegen",
    "codegen": "kdsl.cli.codegen",
    "kafka": "kdsl.cli.kafka",
    "dlq": "kdsl.cli.dlq",
}
"""The module of each command: a function of its name, or for a group of commands a Typer ``app``."""
_GROUPS = ("codegen", "kafka", "dlq")


def _print_version(asked: bool) -> None:
    """If the version was asked for, print it and end the program; raise typer.Exit for that."""
    if asked:
        import kdsl

        out.print(f"kdsl {kdsl.__version__}", highlight=False)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version of kdsl.")
    ] = False,
) -> None:
    """Take the options of ``kdsl`` itself."""


def make_app(names: Iterable[str]) -> typer.Typer:
    """Import some of the `COMMANDS`, and create the command line with them.

    Among several, one that needs a package which is not installed is listed with the extra that installs it.

    Raises:
        ModuleNotFoundError: The only command needs a package that is not installed.
        MissingPackageError: The same, and the message names the extra.
    """
    names = list(names)
    app = typer.Typer(
        name="kdsl",
        help="Kafka tables for PySpark: declare a topic once as a typed class; read it and write it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    app.callback()(_options)
    for name in names:
        try:
            module = import_module(COMMANDS[name])
        except (ModuleNotFoundError, MissingPackageError) as e:
            missing = missing_package(f"kdsl {name}", e) if isinstance(e, ModuleNotFoundError) else e
            if missing is None or len(names) == 1:
                raise
            app.command(name, help=f"{missing}.")(_raise_missing(missing))
            continue
        if name in _GROUPS:
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _raise_missing(error: MissingPackageError) -> Callable[[], None]:
    """Return a command that raises an error."""

    def command() -> None:
        raise error

    return command


def run() -> None:
    """Run the command line of this process; a KdslError is printed, and ends it with the exit code 1.

    Characters that an output stream cannot encode are written as escapes from then on.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    called = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        make_app(called or COMMANDS)()
    except KdslError as e:
        sys.exit(fail(e))
