"""Writes what came of cases into their files, where nothing is expected yet; all other lines stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kdsl.documents import read_text
from kdsl.errors import KdslError
from kdsl.testing.cases.results import CaseResult
from kdsl.testing.cases.values import show


def record_results(path: Path, results: Iterable[CaseResult]) -> list[str]:
    """Add what came as ``expect:`` to the cases and steps of a file that have none; return the names of these cases.

    Args:
        path: The file.
        results: The results of its cases.
    """
    lines = read_text(path, "document", "yaml").split("\n")
    added: list[tuple[int, list[str]]] = []
    names = []
    for result in results:
        steps = [(s, r) for s, r in zip(result.case.steps, result.records, strict=False) if s.expect is None]
        for step, record in steps:
            if step.end is None:
                raise KdslError(
                    f"{result.case.where}: nothing can be added to a case in braces; write each key in a line"
                )
            end, column = step.end
            while end > 0 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
                end -= 1
            added.append((end, [" " * column + line for line in write_expectation(record)]))
        names += [result.case.name] if steps else []
    for end, block in sorted(added, reverse=True):
        lines[end:end] = block
    if added:
        path.write_text("\n".join(lines), encoding="utf-8")
    return names


def write_expectation(record: Mapping[str, Any]) -> list[str]:
    """Write what came as the lines of ``expect:``, with each row or message in a line."""
    lines = ["expect:"]
    for key, value in record.items():
        if isinstance(value, str):
            lines.append(f"  {key}: {show(value)}")
        elif isinstance(value, Mapping):
            lines.append(f"  {key}:" if value else f"  {key}: {{}}")
            for name, items in value.items():
                lines += _write_list(show(name), items, "    ")
        else:
            lines += _write_list(key, value, "  ")
    return lines


def _write_list(key: str, items: Iterable[Any], indent: str) -> list[str]:
    """Write a key and its list, with each element in a line."""
    lines = [f"{indent}  - {show(item)}" for item in items]
    return [f"{indent}{key}:", *lines] if lines else [f"{indent}{key}: []"]
