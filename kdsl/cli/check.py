"""``kdsl check``: judge tables without Spark, Java or a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import attrs
import typer

from kdsl.cli import load
from kdsl.cli.console import out, print_json, print_problem, problem_json
from kdsl.cli.directions import Directions, Way
from kdsl.declare.ddl.load import ENDINGS
from kdsl.errors import Problem, ResolveError
from kdsl.formats import Direction
from kdsl.options import Spelling
from kdsl.resolve import problems
from kdsl.table import Table

# What a table that is only read may have: it cannot be written, which is no mistake by itself.
READ_ONLY = {"sink-topic", "nothing-to-write"}
READ_ONLY_IN_SQL = READ_ONLY | {"metadata-read-only", "raw-key", "raw-value"}


def check(
    targets: Annotated[
        list[str], typer.Argument(help="orders.py, package.module, tables.yaml or tables.sql, also with :Name")
    ],
    direction: Directions = Way.BOTH,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Judge tables: every problem with its place and what to write instead.

    Ends with 0 when no table has an error, with 1 otherwise.
    """
    directions = direction.directions
    found: list[Problem] = []
    names: list[str] = []
    for target in targets:
        try:
            tables, script = _targets(target)
        except ResolveError as e:
            found.extend(e.problems)
            continue
        except load.TargetError as e:
            found.append(Problem("target", str(e), "name a file, a module or a table that is there"))
            continue
        for table in tables:
            names.append(table.name)
            found.extend(judge(table, directions))
        said = {(p.code, p.message, p.where.line, p.where.position) for p in found}
        found.extend(p for p in script if (p.code, p.message, p.where.line, p.where.position) not in said)
    errors = sum(p.severity == "error" for p in found)
    if as_json:
        print_json({"tables": names, "errors": errors, "problems": [problem_json(p) for p in found]})
    else:
        for problem in found:
            print_problem(problem)
        _summary(names, errors, len(found) - errors)
    raise typer.Exit(1 if errors else 0)


def _targets(target: str) -> tuple[list[Table], list[Problem]]:
    """The tables of a target and, of a whole file of SQL, what is wrong with the rest of the script."""
    if not target.lower().endswith(ENDINGS):
        return load.tables(target), []
    from kdsl.script.plan import judge_script

    plan, found = judge_script(load.script(target))
    tables = [table.topic for table in plan.tables if table.topic is not None]
    return tables, [p for p in found if p.code != "cluster-missing"]  # `kdsl run` can be told where the brokers are


def judge(table: Table, directions: Sequence[Direction]) -> list[Problem]:
    """The problems of a table, each once; what only stops a write of a table that can be read is a warning."""
    by_direction = {d: problems(table.definition, d) for d in directions}
    found = list(dict.fromkeys(p for told in by_direction.values() for p in told))
    found = [p for p in found if p.severity == "error" or attrs.evolve(p, severity="error") not in found]
    if len(directions) == 1:
        return found
    in_python = table.definition.spelling is Spelling.PYTHON
    limits = READ_ONLY if in_python else READ_ONLY_IN_SQL
    return [
        attrs.evolve(p, severity="warning", message=f"{p.message} (the table can only be read)")
        if p.code in limits and p not in by_direction["read"]
        else p
        for p in found
    ]


def _summary(names: Sequence[str], errors: int, warnings: int) -> None:
    what = f"{len(names)} table{'' if len(names) == 1 else 's'} checked"
    told = [f"{n} {kind}{'' if n == 1 else 's'}" for n, kind in ((errors, "error"), (warnings, "warning")) if n]
    out.print(f"{what}: {', '.join(told) or 'no problems'}", style="red" if errors else "green", highlight=False)
