"""kdsl's own columns: no message, declaration, table or SQL has a column with such a name, whatever the column."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from kdsl import own_columns
from kdsl.changelog import Changelog
from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import parse_script
from kdsl.errors import ChangelogError
from kdsl.formats import ROW_KIND, UNAVAILABLE
from kdsl.ingest import Ingestion, KafkaFeed, Memory, Transform
from kdsl.ingest.projection import TransformRule, transform_table
from kdsl.ingest.records import RecordSplitter, Split, plan_table
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.own_columns import KIND, MARK, is_reserved
from kdsl.run.records.decode import RecordDecoder
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.ingest.test_records import records
from tests.resolve.tables import errors, table
from tests.source_trees import modules, read, walk

MEMBERS = [value for name, value in vars(own_columns).items() if name.isupper() and name != "MARK"]
NAMES = sorted({name for value in MEMBERS for name in ([value] if isinstance(value, str) else value)})
"""Every name in the module, and every beginning of names."""
LOOKALIKES = (
    ROW_KIND, UNAVAILABLE, "_ROW_KIND", "__kdsl_passes", "__kdsl_time", "__kdsl_partition", "__kdsl_offset",
    "__kdsl_index", "__kdsl_row", "__kdsl_order", "__kdsl_record_topic", "__data_event_type__", "table", "records",
    *(name.removeprefix(MARK) for name in NAMES),
)  # fmt: skip
"""Names that have no meaning in messages, although they are, or look like, those of kdsl's columns."""
each_name = pytest.mark.parametrize("name", NAMES, ids=[name.removeprefix(MARK) for name in NAMES])


def test_each_name_is_reserved_and_means_one_thing() -> None:
    assert len(NAMES) > 20
    assert all(is_reserved(name) for name in NAMES)
    assert sum(1 if isinstance(value, str) else len(value) for value in MEMBERS) == len(NAMES)


def test_no_other_module_makes_names_of_its_own_columns() -> None:
    """Attributes of classes end with two underscores; a column that is added to rows is named in `own_columns`."""
    own = modules()["kdsl.own_columns"]
    wrong = []
    for path in modules().values():
        if path == own:
            continue
        for node in walk(ast.parse(read(path))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if MARK in text or (text.startswith("__kdsl") and not text.endswith("__")):
                    wrong.append(f"{path.name}:{node.lineno} {text!r}")
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "withColumn":
                first = node.args[0]
                if isinstance(first, ast.Constant | ast.JoinedStr):
                    wrong.append(f"{path.name}:{node.lineno} withColumn of a name that is written out")

    assert wrong == []


@each_name
class TestDeclarations:
    def test_a_declared_column(self, name: str) -> None:
        definition = table("id INT", f"`{name}` STRING")
        for direction in ("read", "write"):
            (problem,) = errors(definition, direction)

            assert problem.code == "column-name"
            assert "contains U+FDD0, which kdsl reserves for columns of its own" in problem.message
            assert problem.fix.startswith("rename the column")

    def test_a_name_in_sql(self, name: str) -> None:
        for text in (
            f"CREATE TABLE t (`{name}` INT) WITH ('connector' = 'print')",
            f"CREATE VIEW v AS SELECT 1 `{name}`",
        ):
            script = parse_script(text)

            assert "U+FDD0" in str(script.problems)

    def test_a_name_in_a_projection_and_an_added_column(self, name: str) -> None:
        for option in (
            {"projection": f"id AS `{name}`"},
            {"add_columns": f"`{name}` AS 1"},
            {"filter": f"`{name}` = 1"},
        ):
            source = KafkaFeed(Cluster("localhost:9092"), topic=("t",), value=Json())
            (problem,) = Ingestion(source, Memory(), transform=[Transform("t", **option)]).problems()  # type: ignore[arg-type]

            assert "U+FDD0" in problem.message

    def test_a_prefix_of_names(self, name: str) -> None:
        source = KafkaFeed(Cluster("localhost:9092"), topic=("t",), value=Json(), value_prefix=name)
        (problem,) = Ingestion(source, Memory()).problems()

        assert "U+FDD0" in problem.message

    def test_a_column_of_a_source_table(self, name: str) -> None:
        schema = TableSchema((t.Field("id", t.Int()), t.Field(name, t.STRING)))
        _, (problem,) = transform_table(("t",), schema, [TransformRule.parse(Transform("t", projection="id"))])

        assert "U+FDD0" in problem.message
        assert problem.fix == "rename the column in the source"

    def test_a_dataframe(self, name: str) -> None:
        class Rows:
            columns = ("id", name)

        with pytest.raises(ChangelogError, match=r"U\+FDD0"):
            Changelog(Rows(), keys=["id"])  # type: ignore[arg-type]


def feed(value: Any, **options: Any) -> KafkaFeed:
    return KafkaFeed(Cluster("localhost:9092"), topic=("t",), value=value, **options)


def split(source: KafkaFeed, *values: Any, keys: list[Any] | None = None) -> Split:
    return RecordSplitter(source, max_columns=100).split(records(*values, keys=keys), {})


def encode(message: dict[str, Any], *, escaped: bool) -> bytes:
    return json.dumps(message, ensure_ascii=escaped).encode()


@pytest.mark.parametrize("escaped", [False, True], ids=["as it is", "escaped"])
@each_name
class TestMessages:
    """A record with such a member is one that cannot be read; the others are read."""

    def check(self, result: Split, side: str = "value") -> None:
        (rejection,) = result.rejections
        (packet,) = result.packets

        assert (rejection.index, rejection.side) == (1, side)
        assert "contains U+FDD0, which kdsl reserves" in rejection.reason
        assert packet.records.column("offset").to_pylist() == [10, 12]
        assert packet.delta is not None
        assert not any(is_reserved(f.name) for f in packet.delta.schema.columns)

    def test_json(self, name: str, escaped: bool) -> None:
        self.check(split(feed(Json()), {"id": 1}, encode({"id": 2, name: "-D"}, escaped=escaped), {"id": 3, "x": MARK}))

    def test_the_key(self, name: str, escaped: bool) -> None:
        keys = [{"k": 1}, encode({"k": 2, name: "-D"}, escaped=escaped), {"k": MARK}]
        self.check(split(feed(Json(), key=Json()), {"id": 1}, {"id": 2}, {"id": 3}, keys=keys), "key")

    def test_debezium(self, name: str, escaped: bool) -> None:
        def change(**after: Any) -> dict[str, Any]:
            return {"op": "c", "before": None, "after": after, "source": {"db": "d", "table": "t"}}

        values = change(id=1), encode(change(id=2, **{name: "-D"}), escaped=escaped), change(id=3, x=MARK)
        self.check(split(feed(DebeziumJson()), *values))

    def test_canal(self, name: str, escaped: bool) -> None:
        def change(**row: Any) -> dict[str, Any]:
            return {"type": "INSERT", "data": [row], "database": "d", "table": "t"}

        values = change(id="1"), encode(change(id="2", **{name: "-D"}), escaped=escaped), change(id="3", x=MARK)
        self.check(split(feed(CanalJson()), *values))


@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_member_that_looks_like_a_column_of_kdsl_is_an_ordinary_column(name: str) -> None:
    """All columns that kdsl adds to rows are there, too."""
    after = {"id": 1, name: "-D"}
    message = {"op": "c", "before": None, "after": after, "source": {"db": "d", "table": "t"}}
    source = feed(DebeziumJson(unavailable="keep"), distributed_tables=True)
    batch = records(message)
    (packet,) = RecordSplitter(source, max_columns=100, keyed=True).split(batch, {}).packets
    assert packet.delta is not None
    upstream = UpstreamTable(packet.delta.schema, packet.delta.key)
    decoder = RecordDecoder(plan_table(source, packet.table, upstream, places=True))
    (row,) = decoder.decode(packet.records).to_pylist()

    assert {column: value for column, value in row.items() if not is_reserved(column)} == after
    assert row[KIND] == "+I"
    assert row[own_columns.UNAVAILABLE] == []
    assert [row[column] for column in own_columns.PLACE] == ["t", 0, 10]
    assert {column for column in row if is_reserved(column)} == {
        KIND, own_columns.UNAVAILABLE, *own_columns.PLACE, *own_columns.ORDER,
    }  # fmt: skip
