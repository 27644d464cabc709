"""Generated modules, for type checkers: random ones, one with every awkward name, and one with nested defaults."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from kdsl.codegen import to_python
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.schemas.avro import avro_draft
from kdsl.types import model as t
from tests.codegen.tables import tables

SOME = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], derandomize=True
)

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


def write_modules(folder: Path) -> None:
    """Write the modules into an empty folder."""

    @SOME
    @given(table=tables())
    def write(table: TableDef) -> None:
        (folder / f"m{len(list(folder.iterdir()))}.py").write_text(to_python(table), encoding="utf-8")

    write()
    names = ["str", "int", "date", "Col", "col", "dict", "list", "Decimal", "dt", "dataclass", "class", "x y", "x_y"]
    kinds = [t.Map(t.STRING, t.Decimal(4, 2)), t.Date(), t.Timestamp(3), t.Row((t.Field("int", t.Int()),))]
    columns = [ColumnDef(f"{name}", kinds[i % len(kinds)]) for i, name in enumerate(names)]
    (folder / "awkward.py").write_text(to_python(TableDef("Annotated", tuple(columns))), encoding="utf-8")
    (folder / "defaults.py").write_text(to_python(avro_draft(DEFAULTS)), encoding="utf-8")
