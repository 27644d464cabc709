"""Type checkers accept what is generated, strictly and without a plugin, whatever columns are called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kdsl.codegen import to_python
from kdsl.codegen.inputs.avro import avro_draft
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.types import model as t
from tests.codegen.tables import tables

ROOT = Path(__file__).parents[2]
SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], derandomize=True
)
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

# Members of a nested record with defaults; one is called as what writes them.
DEFAULTS = {
    "type": "record", "name": "T", "fields": [{"name": "r", "type": {"type": "record", "name": "In", "fields": [
        {"name": "field", "type": {"type": "array", "items": "double"}, "default": [1]},
        {"name": "list", "type": {"type": "array", "items": {"type": "array", "items": "int"}}, "default": []},
        {"name": "dict", "type": {"type": "map", "values": ["null", "long"]}, "default": {"a": None}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "A"},
        {"name": "Decimal", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
         "default": "\u0001"},
        {"name": "In", "type": {"type": "record", "name": "Deep", "fields": [{"name": "x", "type": "int"}]},
         "default": {"x": 1}},
        {"name": "long", "type": ["null", "string"], "default": None, "doc": "A text."},
    ]}}],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random modules, and one with every awkward name at once."""
    made = tmp_path_factory.mktemp("typed")

    @SOME
    @given(table=tables())
    def write(table: TableDef) -> None:
        (made / f"m{len(list(made.iterdir()))}.py").write_text(to_python(table), encoding="utf-8")

    write()
    names = ["str", "int", "date", "Col", "col", "dict", "list", "Decimal", "dt", "dataclass", "class", "x y", "x_y"]
    kinds = [t.Map(t.STRING, t.Decimal(4, 2)), t.Date(), t.Timestamp(3), t.Row((t.Field("int", t.Int()),))]
    columns = [ColumnDef(f"{name}", kinds[i % len(kinds)]) for i, name in enumerate(names)]
    (made / "awkward.py").write_text(to_python(TableDef("Annotated", tuple(columns))), encoding="utf-8")
    (made / "defaults.py").write_text(to_python(avro_draft(DEFAULTS)), encoding="utf-8")
    return made


def test_mypy_is_strict_and_content(folder: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--warn-unreachable"]

    done = subprocess.run(
        [*command, *map(str, folder.glob("*.py"))], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.stdout.startswith("Success"), done.stdout


def test_pyright_is_content(folder: Path) -> None:
    config = {"include": ["."], "extraPaths": [str(ROOT), str(ROOT / "formats")], "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", str(folder), "--pythonpath", sys.executable],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stdout.strip() == "0 errors, 0 warnings, 0 informations", done.stdout
