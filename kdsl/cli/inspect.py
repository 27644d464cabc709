"""``kdsl plan`` and ``kdsl schema``: show plans, and the schemas of tables, without Spark, Java or a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import attrs
import typer

from kdsl import load
from kdsl.cli.console import print_json, print_text
from kdsl.cli.variables import VariableFiles, Variables, read_variables
from kdsl.documents import SQL_ENDINGS
from kdsl.errors import fail_on
from kdsl.ingest import Ingestion
from kdsl.plan.text import plan_text

TableArgument = Annotated[
    str, typer.Argument(help="orders.py:Orders, package.module:Orders, tables.yaml:orders, tables.sql:orders")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def plan(
    target: TableArgument,
    write: Annotated[bool, typer.Option("--write", help="The plan of a write instead of a read.")] = False,
    as_json: AsJson = False,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", help="The checkpoint of a stream: it says how the last row of each key is found."),
    ] = None,
    variable: Variables = None,
    variable_files: VariableFiles = None,
) -> None:
    """Print what a read (or a write) of a table does, or what an ingestion in YAML or the copies in a script do.

    Exits with 1 if they do not exist or have errors, or the checkpoint keeps no rows of the table, and with 2 for
    --write, --json or --checkpoint with an ingestion or copies, and for --checkpoint with --write or --json.
    """
    if checkpoint is not None and (write or as_json):
        raise typer.BadParameter("--checkpoint adds to the lines of a read, and not to --write or --json")
    text = _show_copies(target)
    if load.is_ingestion(target):
        text = Ingestion.from_yaml(target, read_variables(variable, variable_files)).explain()
    if text:
        if write or as_json or checkpoint is not None:
            raise typer.BadParameter("--write, --json and --checkpoint are for tables, and this is an ingestion")
        print_text(text.rstrip("\n"))
        return
    table = load.table(target)
    if as_json:
        print_json(json.loads(plan_text(table.write_plan() if write else table.read_plan())))
    else:
        print_text(table.explain("write" if write else "read", checkpoint=checkpoint))


def _show_copies(target: str) -> str:
    """The plans of the copies in a script; empty for another target, and for a script without copies."""
    if not (target.lower().endswith(SQL_ENDINGS) and Path(target).is_file()):
        return ""
    from kdsl.scripts.planner import check_script
    from kdsl.scripts.show import show_script

    script = load.script(target)
    if not script.has_copies:
        return ""
    plan, problems = check_script(script)
    fail_on([p for p in problems if p.code != "cluster-missing" or not plan.copy_jobs], script.subject)
    return show_script(attrs.evolve(plan, jobs=plan.copy_jobs, listings=()))


def schema(
    target: TableArgument,
    key: Annotated[bool, typer.Option("--key", help="The schema of the message key.")] = False,
    value: Annotated[bool, typer.Option("--value", help="The schema of the message value.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the schema of a table's DataFrame, or of its message key or value; exit with 2 if both are asked for.

    Exits with 1 if the table does not exist or cannot be read.
    """
    if key and value:
        raise typer.BadParameter("give --key or --value, not both")
    table = load.table(target)
    schema_ = table.key_schema() if key else table.value_schema() if value else table.schema()
    if as_json:
        print_json(schema_.jsonValue())
    else:
        print_text(schema_.treeString().rstrip("\n"))
