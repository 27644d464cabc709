"""``kdsl diff`` and ``kdsl apply``: how declarations differ from what is live, and changes that only add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import attrs
import typer
from rich.text import Text

from kdsl import load
from kdsl.cli.clusters import parse_pairs, with_cluster
from kdsl.cli.console import has_keyboard, log_lines, out, print_json, print_problem, print_status, progress
from kdsl.cli.directions import DirectionChoice, Directions
from kdsl.cli.variables import VariableFiles, Variables, read_variables
from kdsl.cluster import Cluster
from kdsl.deployment.compare import compare, make_changes, select_changes, with_checkpoints
from kdsl.deployment.model import Difference, Mark, Step
from kdsl.deployment.result import Diff
from kdsl.deployment.show import show_differences, show_line, summarize
from kdsl.errors import ResolveError, pluralize

_STYLES: dict[Mark, str] = {"+": "green", "~": "yellow", "!": "bold red", "?": "magenta"}
_NOT_COMPARABLE = 2

Files = Annotated[
    list[str],
    typer.Argument(
        help="orders.py, package.module, tables.yaml or script.sql, optionally with :Name, or an ingestion in YAML"
    ),
]
Checkpoints = Annotated[
    list[str] | None,
    typer.Option(
        "--checkpoint",
        help="The checkpoint of a table's query as TABLE=FOLDER, or of an ingestion as NAME=FOLDER. May be repeated.",
    ),
]


@with_cluster()
def diff(
    files: Files,
    cluster: Cluster | None = None,
    direction: Directions = DirectionChoice.BOTH,
    checkpoint: Checkpoints = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything differs.")] = False,
    variable: Variables = None,
    variable_files: VariableFiles = None,
) -> None:
    """Compare declarations with the cluster, the schema registry, groups, checkpoints and tables of sinks.

    Nothing is changed. Exits with 0, with --exit-code with 1 if anything differs. Exits with 2 if something cannot be
    looked at, because a right is missing or something does not answer; the rest is compared all the same. Exits with 2,
    too, if declarations have errors.
    """
    steps = _compare(files, cluster, direction, checkpoint, read_variables(variable, variable_files))
    result = Diff(tuple(step.difference for step in steps))
    if as_json:
        counts = {name: result.count(mark) for mark, name in _COUNTS.items()}
        print_json({**counts, "differences": [difference_json(d) for d in result.differences]})
    else:
        _print(result)
    if result.count("?"):
        raise typer.Exit(_NOT_COMPARABLE)
    raise typer.Exit(1 if exit_code and result else 0)


@with_cluster()
def apply(
    files: Files,
    cluster: Cluster | None = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the changes.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="partitions: also raise the partitions of topics whose records have keys."),
    ] = None,
    direction: Directions = DirectionChoice.BOTH,
    checkpoint: Checkpoints = None,
    variable: Variables = None,
    variable_files: VariableFiles = None,
) -> None:
    """Create what is declared and missing, and change what only becomes wider; nothing is deleted or narrowed.

    It prints the differences, asks, and makes the changes marked + and ~. To repeat it is safe. Exits with 0 if all of
    them were made, with 1 if one failed or needs --allow, or the answer is no, and with 2 if something cannot be looked
    at, declarations have errors, or without --yes there is no terminal to ask on.
    """
    if wrong := [name for name in allow or () if name != "partitions"]:
        raise typer.BadParameter(f"{wrong[0]!r} is not partitions", param_hint="--allow")
    steps = _compare(files, cluster, direction, checkpoint, read_variables(variable, variable_files))
    result = Diff(tuple(step.difference for step in steps))
    _print(result)
    count = len(select_changes(steps, allow or ()))
    if count and not yes:
        if not has_keyboard():
            raise typer.BadParameter(
                f"{pluralize(count, 'change')} would be made, and nobody can be asked", param_hint="--yes"
            )
        typer.confirm(f"make {pluralize(count, 'change')}?", abort=True)
    applied = make_changes(steps, allow or (), lambda d: _print_line("done", d))
    for d in applied.not_allowed:
        _print_line("not done, needs --allow partitions", d)
    if applied.failed is not None:
        _print_line(f"failed, {applied.error}", applied.failed)
    for d in applied.left:
        _print_line("not done", d)
    count = len(applied.done)
    rest = len(applied.left) + len(applied.not_allowed) + (applied.failed is not None)
    out.print(f"{count} changed, {rest} not." if rest else f"{count} changed.", highlight=False)
    if applied.failed is not None or applied.not_allowed:
        raise typer.Exit(1)
    raise typer.Exit(_NOT_COMPARABLE if result.count("?") else 0)


_COUNTS: dict[Mark, str] = {"+": "create", "~": "change", "!": "refused", "?": "not_comparable"}


def difference_json(d: Difference) -> dict[str, Any]:
    """A difference as a JSON object, with file, line and table instead of ``where``."""
    document = attrs.asdict(d, filter=lambda a, _: a.name != "where")
    return {**document, "file": d.where.file, "line": d.where.line, "table": d.where.table}


def _compare(
    files: Sequence[str],
    cluster: Cluster | None,
    direction: DirectionChoice,
    checkpoints: list[str] | None,
    variables: dict[str, str],
) -> list[Step]:
    """Load the declarations of files, and compare them with what is live; progress and the log go to standard error."""
    try:
        declared = [d for file in files for d in load.declarations(file, direction.directions, variables, cluster)]
        try:
            titled = with_checkpoints(declared, parse_pairs(checkpoints, "--checkpoint"), {})
        except ValueError as e:
            raise typer.BadParameter(str(e), param_hint="--checkpoint") from None
        with progress("comparing"), log_lines():
            return compare(titled, cluster)
    except load.TargetError as e:
        raise typer.BadParameter(str(e), param_hint="FILES") from None
    except ResolveError as e:
        for problem in e.problems:
            print_problem(problem)
        print_status("the declarations have errors; correct them first (kdsl check)")
        raise typer.Exit(_NOT_COMPARABLE) from None


def _print(result: Diff) -> None:
    """Print the differences and the summary."""
    for line in show_differences(result.differences):
        mark = line.strip()[:1]
        text = Text(line)
        for known, style in _STYLES.items():
            if mark == known:
                text.stylize(style, line.index(mark), line.index(mark) + 1)
        out.print(text, highlight=False, soft_wrap=True)
    out.print(summarize(result.differences), highlight=False)


def _print_line(what: str, d: Difference) -> None:
    """Print what became of a difference."""
    line = show_line(attrs.evolve(d, consequence="", where=type(d.where)()))
    out.print(Text(f"{what}: {line}"), highlight=False, soft_wrap=True)
