"""``kdsl test``: runs cases of tables, scripts and ingestions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdsl.cli.console import out, print_problem, print_text, progress
from kdsl.errors import KdslError, ResolveError

if TYPE_CHECKING:
    from kdsl.testing.cases.model import Case, CaseFile
    from kdsl.testing.cases.results import CaseResult, Services


def run_cases(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE|FOLDER]...", help="Files *.test.yaml, and folders with some; the current one."),
    ] = None,
    words: Annotated[
        str | None, typer.Option("-k", help="Run only cases with this text in their name, or in that of their file.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Add what came to the cases that expect nothing yet, as expect:.")
    ] = False,
) -> None:
    """Run cases: input messages of a table, a SQL script or an ingestion, and the rows that should come of them.

    The cases of tables need neither Kafka nor Spark. For those of scripts and ingestions both are started on this
    machine; no other cluster is used, whatever the declaration names.

    Exits with 0 if all cases pass, with 1 if one fails or a file has errors, and with 2 if there is no such file or
    folder, or no case.
    """
    from kdsl.testing.cases import ENDINGS
    from kdsl.testing.cases.results import Services
    from kdsl.testing.cases.run import find_case_files

    try:
        files = find_case_files(paths or [Path()])
    except KdslError as e:
        raise typer.BadParameter(str(e), param_hint="FILE") from None
    if not files:
        raise typer.BadParameter(f"there are no files *{ENDINGS[0]}", param_hint="FILE")
    counts = {"passed": 0, "recorded": 0, "failed": 0}
    broken = 0
    with Services(progress=progress) as services:
        for path in files:
            file = _read_file(path)
            broken += file is None
            cases = [] if file is None else [c for c in file.cases if words is None or words in f"{path}: {c.name}"]
            if file is not None:
                for outcome in _run_cases(file, cases, services, write=write):
                    counts[outcome] += 1
    total = sum(counts.values())
    if not total and not broken:
        raise typer.BadParameter(f"no case has {words!r} in its name" if words else "the files have no cases")
    numbers = [f"{count} {word}" for word, count in counts.items() if count]
    numbers += [f"{broken} {'file' if broken == 1 else 'files'} with errors"] if broken else []
    out.print(f"{total} {'case' if total == 1 else 'cases'}: {', '.join(numbers) or 'none run'}", highlight=False)
    raise typer.Exit(1 if counts["failed"] or broken else 0)


def _read_file(path: Path) -> CaseFile | None:
    """Read a file of cases; None, with its problems printed, if it has some."""
    from kdsl.testing.cases.document import read_cases

    try:
        return read_cases(path)
    except ResolveError as e:
        for problem in e.problems:
            print_problem(problem)
    except OSError as e:
        print_text(f"{path} cannot be read: {e.strerror}")
    return None


def _run_cases(file: CaseFile, cases: list[Case], services: Services, *, write: bool) -> list[str]:
    """Run cases, and print a line for each, and what differs; return whether each passed, was recorded, or failed."""
    from kdsl.testing.cases.record import record_results
    from kdsl.testing.cases.run import run_case

    outcomes: list[str] = []
    results: list[CaseResult] = []
    for case in cases:
        result = run_case(file, case, services)
        results.append(result)
        unwritten = write and any(step.expect is None for step in case.steps) and result.can_be_recorded
        outcome = "recorded" if unwritten else "failed" if result.lines else "passed"
        outcomes.append(outcome)
        colour = {"passed": "green", "failed": "red"}.get(outcome, "yellow")
        out.print(f"[{colour}]{outcome:<8}[/] ", end="")
        print_text(f"{file.path}{f':{case.where.line}' if outcome == 'failed' else ''}: {case.name}")
        if outcome == "failed":
            print_text("\n".join(f"    {line}" for line in result.lines))
    if write:
        record_results(file.path, results)
    return outcomes
