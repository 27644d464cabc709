"""Runs cases, and finds their files."""

from __future__ import annotations

import time
import traceback
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kdsl.errors import KdslError, ResolveError, listing
from kdsl.extras import explain_missing_package
from kdsl.testing.cases import ENDINGS
from kdsl.testing.cases.model import Case, CaseFile, Step
from kdsl.testing.cases.registry import CaseRegistry
from kdsl.testing.cases.results import CaseResult, Outcome, Services


def find_case_files(paths: Iterable[Path]) -> list[Path]:
    """Find the files of cases: files themselves, and those in folders, but not in hidden ones; sorted.

    Raises:
        KdslError: There is no such file or folder, or a file has another name.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            candidates = (file for file in path.rglob("*") if file.name.endswith(ENDINGS) and file.is_file())
            files += sorted(
                file for file in candidates if not any(p.startswith(".") for p in file.relative_to(path).parts)
            )
        elif not path.exists():
            raise KdslError(f"there is no file or folder {str(path)!r}")
        elif not path.name.endswith(ENDINGS):
            raise KdslError(f"{str(path)!r} is not a file of cases; their names end with {listing(ENDINGS)}")
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def run_case(file: CaseFile, case: Case, services: Services) -> CaseResult:
    """Run a case.

    Args:
        file: Its file.
        case: The case.
        services: What runs it if it needs Spark.
    """
    began = time.monotonic()
    lines: list[str] = []
    records: list[Mapping[str, Any]] = []
    steps = _open_steps(file, case, services)
    try:
        for i, step in enumerate(case.steps):
            prefix = f"step {i + 1}: " if len(case.steps) > 1 else ""
            differences, record = _run_step(steps, step)
            lines += [f"{prefix}{line}" if not line.startswith(" ") else line for line in differences]
            records.append(record)
            if "fails" in record or not record:  # then there is no further one
                break
    finally:
        steps.close()
    return CaseResult(case, tuple(lines), tuple(records), time.monotonic() - began)


def _run_step(steps: Iterator[Outcome], step: Step) -> tuple[list[str], Mapping[str, Any]]:
    """Run the next step; return the differences, and what came."""
    expect = step.expect
    try:
        outcome = next(steps)
    except KdslError as e:
        record = {"fails": _name(e)}
        if expect is not None and expect.fails is not None:
            codes = [problem.code for problem in e.problems] if isinstance(e, ResolveError) else []
            if expect.fails in (*codes, type(e).__name__) or expect.fails in str(e):
                return [], record
            return [f"it is expected to fail with {expect.fails!r}, but it fails otherwise:", *_indent(str(e))], record
        return ["it fails:", *_indent(str(e))], record
    except Exception as e:  # noqa: BLE001  # a fault of kdsl or of a plug-in, for its report; other cases still run
        return ["it fails with an error of Python:", *_indent("".join(traceback.format_exception(e)).rstrip())], {}
    if expect is None:
        return ["nothing is expected: write 'expect:', or let kdsl test --write add what came"], outcome.record
    if expect.fails is not None:
        return [f"it is expected to fail with {expect.fails!r}, but it succeeds"], outcome.record
    return outcome.compare(expect), outcome.record


def _name(error: KdslError) -> str:
    """What is written of an error: the code of its first problem, or else its first line."""
    return (
        error.problems[0].code if isinstance(error, ResolveError) and error.problems else str(error).partition("\n")[0]
    )


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def _open_steps(file: CaseFile, case: Case, services: Services) -> Generator[Outcome]:
    """Yield what comes of each step; what the declaration stores stays until the last one."""
    from kdsl.testing.cases.tables import run_table_case
    from kdsl.testing.cases.targets import load_table

    with CaseRegistry(file.schemas) as registry:
        if file.kind == "table":
            yield run_table_case(load_table(file), case, registry, services)
            return
        with explain_missing_package(f"a case of a {file.kind}"):
            import pyspark  # noqa: F401

            from kdsl.testing.cases.jobs import run_ingestion_steps, run_script_steps

        run = run_script_steps if file.kind == "script" else run_ingestion_steps
        yield from run(file, case, registry, services)
