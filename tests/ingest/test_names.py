"""Names of columns that nobody would choose: those of kdsl, and names that differ only in letter case."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.errors import StreamingQueryException

from kdsl.changelog.target import Batch
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.cluster import Cluster
from kdsl.formats import TableId
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables, KafkaTopics, Memory, Print, Route, Sink, Transform
from kdsl.ingest.run.sinks import MemoryWriter, SinkTable, SinkWriter
from kdsl.ingest.run.sinks.delta import DeltaWriter
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json
from tests.ingest.setup import Failing, Setup, change
from tests.postgres import PASSWORD, Postgres

ODD = {"_row_kind": "-D", "_unavailable": ["n"], "__kdsl_passes": False, "__kdsl_time": "x", "__kdsl_index": -1,
       "__kdsl_record_topic": None, "__data_event_type__": "?", "a.b": 1, "`": 2, '"': 3, " ": 4, "\t": 5, "$1": 6,
       "source.id": 7, "ä": 8, "\U0001f600": 9}  # fmt: skip
"""Members whose names have no meaning in messages; ``None`` shows no column."""


TWINS = {"ID": 10, "N": "z"}
NESTED = {"row": {"a": 1, "A": 2}, "Row": [{"b": 1, "B": {"c": 3, "C": "4"}}]}
FIXED = (
    "_unavailable ARRAY<STRING>, `row` ROW<a BIGINT, A BIGINT>, `Row` ARRAY<ROW<b BIGINT, B ROW<c BIGINT, C STRING>>>"
)
"""The types of what has no type of its own in JSON."""
CONDITIONS = [pytest.param(None, marks=pytest.mark.reliability), "`ID` = 10 AND `row`.`A` = 2"]


def run_changes(
    setup: Setup,
    sink: Sink,
    more: dict[str, Any],
    writer: SinkWriter | None = None,
    condition: str | None = None,
    route: Sequence[Route] = (),
) -> dict[str, Any]:
    """Write two inserts, an update and a delete, and return the row that remains, without what is NULL."""
    first, second = {"id": 1, "n": "a", **more}, {"id": 2, "n": "b", **more}
    last = {**first, "n": "c"}
    setup.produce(change("c", None, first), change("c", None, second))
    setup.produce(change("u", first, last), change("d", second, None))
    unavailable: Literal["keep", "error"] = "keep" if sink.rules.keeps_values else "error"
    types = None if isinstance(more["_unavailable"], str) else FIXED
    feed = setup.feed(value=DebeziumJson(infer_fixed_types=types, unavailable=unavailable))
    rule = Transform("shop.orders", filter=condition, primary_keys=("id",))
    setup.run(setup.ingestion(sink, feed, transform=[rule], route=route), writer)
    return {name: value for name, value in last.items() if value is not None}


def select_present(row: dict[str, Any]) -> dict[str, Any]:
    """The values of a row that are not NULL."""
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_all_names_are_columns_in_memory(setup: Setup, condition: str | None) -> None:
    writer = MemoryWriter()
    wanted = run_changes(setup, Memory(), {**ODD, **TWINS, **NESTED}, writer, condition)

    (row,) = writer.tables["shop", "orders"].rows()
    assert select_present(row) == wanted


def test_all_names_are_columns_of_appended_rows(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    writer, row = MemoryWriter(), {"id": 1, **ODD, **TWINS, **NESTED}
    setup.produce(row, row)
    feed = setup.feed(value=Json(infer_fixed_types=FIXED))
    setup.run(setup.ingestion(Memory(), feed), writer)
    shutil.rmtree(setup.checkpoint)
    setup.run(setup.ingestion(Print(), feed))

    assert list(map(select_present, writer.appended[setup.topic,])) == [select_present(row)] * 2
    assert capsys.readouterr().out.count(f"{setup.topic} +I[1, -D, ['n'], False, x, -1, ") == 2


def test_names_of_kdsl_are_columns_in_delta(setup: Setup) -> None:
    names = {name: value for name, value in ODD.items() if not set(name) & set(DeltaTables.rules.forbidden)}
    wanted = run_changes(setup, DeltaTables(setup.lake), names)

    (row,) = setup.table("shop", "orders")
    assert select_present(row) == wanted


@pytest.mark.reliability
@pytest.mark.postgres
def test_all_names_are_columns_in_a_database(setup: Setup, postgres: Postgres) -> None:
    schema = f"s{setup.topic[-8:]}"
    sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
    row = {**ODD, **TWINS, "_unavailable": "n"}  # arrays are not written to databases
    wanted = run_changes(setup, sink, row, route=[Route("shop.orders", f"{schema}.orders")])

    (line,) = postgres.execute(f"SELECT row_to_json(t) FROM {schema}.orders t").splitlines()
    assert select_present(json.loads(line)) == wanted


@pytest.mark.parametrize("condition", CONDITIONS)
def test_all_names_are_members_of_messages(setup: Setup, kdsl_topic: MakeTopic, condition: str | None) -> None:
    topic = kdsl_topic()
    sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic, value=DebeziumJson())
    wanted = run_changes(setup, sink, {**ODD, **TWINS, **NESTED}, None, condition)

    messages = [json.loads(record.value() or b"") for record in setup.kafka.read(topic)]
    assert [message["op"] for message in messages] == ["c", "c", "u", "d"]
    assert messages[2]["after"] == wanted


class TestCaseInDelta:
    """Delta takes names that differ only in letter case for the same: the batch is refused until one is renamed."""

    def fail(self, setup: Setup, ingestion: Ingestion) -> str:
        with pytest.raises(StreamingQueryException) as failed:
            setup.run(ingestion)
        assert setup.history() == []
        assert not Path(setup.lake).exists()
        return str(failed.value)

    def test_of_columns(self, setup: Setup) -> None:
        setup.produce({"id": 1, "v": 1, "V": "x"})
        reason = self.fail(setup, setup.ingestion(DeltaTables(setup.lake)))

        assert "does not tell the columns 'v'" in reason
        assert "list the columns in a projection, without *, and rename one: `V` AS `V_2`" in reason

        rule = Transform(r"\.*", projection="id, v, `V` AS `V_2`", primary_keys=("id",))
        setup.run(setup.ingestion(DeltaTables(setup.lake), transform=[rule]))
        setup.produce({"id": 1, "v": 2, "V": "y"})
        setup.run(setup.ingestion(DeltaTables(setup.lake), transform=[rule]))
        assert setup.table(setup.topic) == [{"id": 1, "v": 2, "V_2": "y"}]

    @pytest.mark.reliability
    def test_of_members(self, setup: Setup) -> None:
        setup.produce({"id": 1, "a": [{"b": 1}], "r": {"x": 1, "X": 2}})
        feed = setup.feed(value=Json(infer_fixed_types="r ROW<x INT, X INT>"))
        reason = self.fail(setup, setup.ingestion(DeltaTables(setup.lake), feed))

        assert "column 'r': " in reason
        assert "does not tell its members 'x' and 'X' apart" in reason
        assert "leave the column out with a projection" in reason

        rule = Transform(r"\.*", projection="id, a, `r`.`x` AS `x`, r.X AS x_2")
        setup.run(setup.ingestion(DeltaTables(setup.lake), feed, transform=[rule]))
        assert [(row["id"], row["x"], row["x_2"]) for row in setup.table(setup.topic)] == [(1, 1, 2)]


class Columns(MemoryWriter):
    """Knows how the session of each batch treats letter case."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: list[str | None] = []

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        self.settings.append(table.rows.sparkSession.conf.get("spark.sql.caseSensitive"))
        super().write_table(table, batch)


def test_only_batches_that_need_it_tell_letter_case_apart(setup: Setup) -> None:
    writer = Columns()
    ingestion = setup.ingestion(Memory(), setup.feed(value=Json(table_id_fields="t")))
    for message in ({"t": "a", "id": 1}, {"t": "b", "id": 1, "ID": 2}, {"t": "a", "id": 2}):
        setup.produce(message)
        setup.run(ingestion, writer)

    assert writer.settings == ["false", "true", "false"]
    assert setup.spark.conf.get("spark.sql.caseSensitive") == "false"


TABLES = (
    "orders",
    "orders ",
    " orders",
    " ",
    "a.b",
    "`",
    "``",
    '"',
    "$1",
    "'",
    "\t",
    "\u2028",
    "Orders",
    "x\\y",
    "*",
    "%20",
)


def test_tables_of_any_name_have_their_own_rows(setup: Setup) -> None:
    """Also after a restart, which reads what was learned of them."""
    writer = MemoryWriter()
    ingestion = setup.ingestion(Memory(), setup.feed(value=Json(table_id_fields="t")))
    for number in (1, 2):
        setup.produce(*({"t": table, f"of {i}": number} for i, table in enumerate(TABLES)))
        setup.run(ingestion, writer)

    assert dict(writer.appended) == {
        (table,): [{"t": table, f"of {i}": number} for number in (1, 2)] for i, table in enumerate(TABLES)
    }
    assert setup.state().records == {(table,): 2 for table in TABLES}


class OnePlace(DeltaWriter):
    """All sink tables are one table of Delta."""

    def target(self, table: TableId) -> DeltaTarget:
        return super().target(("one",))


@pytest.mark.reliability
def test_two_ids_of_one_physical_table_are_both_written_once(setup: Setup) -> None:
    writer = OnePlace(DeltaTables(setup.lake), 1)
    ingestion = setup.ingestion(DeltaTables(setup.lake), setup.feed(value=Json(table_id_fields="t")))
    for number in (1, 2):
        setup.produce({"t": "a", "n": number}, {"t": "b", "n": number})
        with pytest.raises(StreamingQueryException, match="gone after all tables"):
            setup.run(ingestion, Failing(writer, number - 1, "after all tables"))
        setup.run(ingestion, writer)  # repeats the batch

    assert setup.table("one") == [{"t": table, "n": number} for table in "ab" for number in (1, 2)]
