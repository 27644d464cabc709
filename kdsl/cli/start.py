"""The commands, each imported when it is called, and how they end.

The exit code is 0 when all is well, 1 when what was asked about is wrong, 2 for a wrong call.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import typer

from kdsl.cli.console import fail, out, use_json_logs
from kdsl.errors import KdslError
from kdsl.extras import MissingPackageError, missing_package
from kdsl.plugins import PluginError, PluginGroup

LogFormat = Literal["text", "json"]
COMMANDS = PluginGroup("kdsl.commands", "command")
"""The commands, those of other packages as well: each is a function, or a ``typer.Typer`` for a group of commands."""


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
    log_format: Annotated[
        LogFormat,
        typer.Option(
            "--log-format",
            envvar="KDSL_LOG_FORMAT",
            help="How lines on the standard error look: as text, or each as a JSON object.",
        ),
    ] = "text",
) -> None:
    """Take the options of ``kdsl`` itself; that of the version has ended the program by itself."""
    del version
    if log_format == "json":
        use_json_logs()


def make_app(names: Iterable[str]) -> typer.Typer:
    """Import some of the `COMMANDS`, and create the command line with them.

    Among several, one that cannot be imported is listed with the reason, such as the extra that installs what it needs.
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
            command = _load(name)
        except KdslError as e:
            if len(names) == 1:
                if isinstance(e, MissingPackageError) and isinstance(e.__cause__, ModuleNotFoundError):
                    raise e.__cause__ from None
                raise
            app.command(name, help=f"{e}.")(_raise_error(e))
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _load(name: str) -> Any:
    """Import a command."""
    try:
        command = COMMANDS.load(name)
    except PluginError as e:
        if isinstance(e.__cause__, ModuleNotFoundError):
            raise missing_package(f"kdsl {name}", e.__cause__) or e from e.__cause__
        raise
    if not callable(command):
        raise PluginError(
            f"the command {name!r} is neither a function nor a typer.Typer; correct the entry point of its package"
        )
    return command


def _raise_error(error: KdslError) -> Callable[[], None]:
    """Return a command that raises an error."""

    def command() -> None:
        raise error

    return command


def _find_command(arguments: Sequence[str]) -> Sequence[str]:
    """The first argument that is not about the log; the command, an option, or none."""
    words = list(arguments)
    while words and words[0].partition("=")[0] == "--log-format":
        del words[: 1 if "=" in words[0] else 2]
    return words[:1]


def run() -> None:
    """Run the command line of this process; a KdslError is printed, and ends it with the exit code 1.

    Characters that an output stream cannot encode are written as escapes from then on.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        called = [name for name in _find_command(sys.argv[1:]) if name in COMMANDS.find_all()]
        make_app(called or COMMANDS.find_all())()
    except KdslError as e:
        sys.exit(fail(e))
