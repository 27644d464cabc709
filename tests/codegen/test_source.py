"""Tables as Python source: what is written declares the same tables, and formatters leave it alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kdsl.codegen import to_python
from kdsl.declare.definition import TableDef
from tests.codegen.tables import definitions, module, tables

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


def formatted(folder: Path, length: int) -> str:
    """What ruff would change."""
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--no-cache", "--diff"]
    done = subprocess.run([*command, "--line-length", str(length), str(folder)], capture_output=True, text=True)
    return done.stdout


def differing(a: TableDef, b: TableDef) -> dict[str, tuple[object, object]]:
    names = [x.name for x in attrs.fields(TableDef) if x.eq]
    return {n: (getattr(a, n), getattr(b, n)) for n in names if getattr(a, n) != getattr(b, n)}


@FEW
@given(table=tables())
def test_a_table_reads_back_equal_from_its_source(table: TableDef, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    source = to_python(table)

    (found,) = definitions(module(source, tmp_path_factory.mktemp("generated")))

    assert (differing(found, table), found.problems) == ({}, ()), source
    assert found == table
    assert to_python(found) == source


def test_ruff_changes_nothing_at_any_line_length(tmp_path: Path) -> None:
    @settings(FEW, max_examples=100)
    @given(table=tables())
    def write(table: TableDef) -> None:
        (tmp_path / f"m{len(list(tmp_path.iterdir()))}.py").write_text(to_python(table), encoding="utf-8")

    write()

    assert [formatted(tmp_path, length) for length in (88, 100, 120)] == ["", "", ""]
