"""The commands and how they end: 0 when all is well, 1 when what was asked about is wrong, 2 for a wrong call."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from kdsl.cli import check, codegen, demo, diff, dlq, doctor, ingest, inspect, kafka, lag, peek, run, verify
from kdsl.cli.console import fail, out
from kdsl.errors import KdslError

app = typer.Typer(
    name="kdsl",
    help="Kafka tables for PySpark: declare a topic once as a typed class; read it and write it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(asked: bool) -> None:
    """If the version was asked for, print it and end the program; raise typer.Exit for that."""
    if asked:
        import kdsl

        out.print(f"kdsl {kdsl.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version of kdsl.")
    ] = False,
) -> None:
    """Take the options of ``kdsl`` itself."""


app.command("demo")(demo.demo)
app.command("check")(check.check)
app.command("plan")(inspect.plan)
app.command("schema")(inspect.schema)
app.command("peek")(peek.peek)
app.command("lag")(lag.lag)
app.command("doctor")(doctor.doctor)
app.command("diff")(diff.diff)
app.command("apply")(diff.apply)
app.command("verify")(verify.verify)
app.command("run")(run.run)
app.command("ingest")(ingest.ingest)
app.command("export")(codegen.export)
app.add_typer(codegen.app, name="codegen")
app.add_typer(kafka.app, name="kafka")
app.add_typer(dlq.app, name="dlq")


def main() -> None:
    """Run the command line of this process; a KdslError is printed, and ends it with the exit code 1.

    Characters that an output stream cannot encode are written as escapes from then on.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except KdslError as e:
        sys.exit(fail(e))
