"""``kdsl check``: check tables without Spark, Java or a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import attrs
import typer

from kdsl import load
from kdsl.cli.console import out, print_json, print_problem, problem_json
from kdsl.cli.directions import DirectionChoice, Directions
from kdsl.cli.variables import VariableFiles, Variables, read_variables
from kdsl.documents import SQL_ENDINGS
from kdsl.errors import Problem, ResolveError, file_position, pluralize
from kdsl.formats import READ_ONLY as FORMAT_READ_ONLY, Direction
from kdsl.options import Spelling
from kdsl.resolve import problems
from kdsl.table import Table

# Problems that only prevent writing; a table that is only read may have them.
READ_ONLY = {"sink-topic", "nothing-to-write", FORMAT_READ_ONLY}
READ_ONLY_IN_SQL = READ_ONLY | {"metadata-read-only", "raw-key", "raw-value"}


def check(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="orders.py, package.module, tables.yaml or tables.sql, optionally with :Name, or an ingestion in YAML"
        ),
    ],
    direction: Directions = DirectionChoice.BOTH,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    variable: Variables = None,
    variable_files: VariableFiles = None,
) -> None:
    """Check tables and ingestions, and print every problem with its location and its fix.

    Exits with 0 if nothing has an error, otherwise with 1; with 2 if a variable or a file of variables cannot be read.
    """
    all_problems: list[Problem] = []
    names: list[str] = []
    ingestions: list[str] = []
    variables = read_variables(variable, variable_files)
    for target in targets:
        try:
            if load.is_ingestion(target):
                ingestions.append(target)
                all_problems.extend(load.ingestion(target, variables)[1])
                continue
            tables, script, copies = _targets(target)
        except ResolveError as e:
            all_problems.extend(e.problems)
            continue
        except load.TargetError as e:
            all_problems.append(Problem("target", str(e), "name an existing file, module or table"))
            continue
        ingestions += copies
        of_target: list[Problem] = []
        for table, used in tables:
            names.append(table.name)
            of_target.extend(check_table(table, direction.of(table, used)))
        reported = {(p.code, p.message, p.where.line, p.where.position) for p in of_target}
        of_target.extend(p for p in script if (p.code, p.message, p.where.line, p.where.position) not in reported)
        all_problems.extend(sorted(of_target, key=file_position) if script else of_target)
    errors = sum(p.severity == "error" for p in all_problems)
    if as_json:
        checked = {"tables": names, **({"ingestions": ingestions} if ingestions else {})}
        print_json({**checked, "errors": errors, "problems": [problem_json(p) for p in all_problems]})
    else:
        for problem in all_problems:
            print_problem(problem)
        _print_summary(names, ingestions, errors, len(all_problems) - errors)
    raise typer.Exit(1 if errors else 0)


def _targets(target: str) -> tuple[list[tuple[Table, tuple[Direction, ...]]], list[Problem], list[str]]:
    """The tables of a target and, if it is a whole SQL file, its problems and the names of what it copies into.

    Each table comes with the directions in which the statements of the file use it; empty if none does.

    Of a whole SQL file only tables of Kafka are returned; a missing cluster is not among its problems. Others are
    those of `load.tables`, which imports Python.
    """
    if not target.lower().endswith(SQL_ENDINGS):
        return [(table, ()) for table in load.tables(target)], [], []
    from kdsl.scripts.planner import check_script

    plan, script_problems = check_script(load.script(target))
    used = load.script_directions(plan)
    tables = [(table.topic, used.get(table.name, ())) for table in plan.tables if table.topic is not None]
    copies = [copy.name for job in plan.copy_jobs for copy in job.copies]
    return tables, [p for p in script_problems if p.code != "cluster-missing"], copies  # `kdsl run` has options for it


def check_table(table: Table, directions: Sequence[Direction]) -> list[Problem]:
    """Return the problems of a table's declaration, each once: as an error if it is one in any direction.

    If both directions are checked, one that only prevents writing is a warning, with a message that says so.
    """
    by_direction = {d: problems(table.definition, d) for d in directions}
    unique = list(dict.fromkeys(p for each in by_direction.values() for p in each))
    unique = [p for p in unique if p.severity == "error" or attrs.evolve(p, severity="error") not in unique]
    if len(directions) == 1:
        return unique
    in_python = table.definition.spelling is Spelling.PYTHON
    limits = READ_ONLY if in_python else READ_ONLY_IN_SQL
    return [
        attrs.evolve(p, severity="warning", message=f"{p.message} (the table can only be read)")
        if p.code in limits and p not in by_direction["read"]
        else p
        for p in unique
    ]


def _print_summary(names: Sequence[str], ingestions: Sequence[str], errors: int, warnings: int) -> None:
    """Print how many tables and ingestions were checked, and how many errors and warnings they have."""
    many = {"table": len(names), "ingestion": len(ingestions)}
    parts = [pluralize(n, what) for what, n in many.items() if n or (what == "table" and not ingestions)]
    what = f"{' and '.join(parts)} checked"
    counts = [pluralize(n, kind) for n, kind in ((errors, "error"), (warnings, "warning")) if n]
    out.print(f"{what}: {', '.join(counts) or 'no problems'}", style="red" if errors else "green", highlight=False)
