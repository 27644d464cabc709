"""Filters and soft deletes in every sink, compared with a small model of Flink CDC's changes."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog.target import Batch
from kdsl.cluster import Cluster
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables, KafkaTopics, Memory, Print, Route, Sink, Transform
from kdsl.ingest.run.sinks import KIND, MemoryWriter, SinkTable, TableWriter
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Row, Setup, change
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from kdsl.testing.pytest_plugin import MakeTopic

Event = tuple[str, Row | None, Row | None]
CASES = list(product((True, False), (True, False), (False, True)))
"""Whether the row before passes, whether the row after does, and whether the key changes."""
KINDS = {"c": ("", "+I"), "u": ("-U", "+U"), "d": ("-D", "")}
TABLES = {"hard": False, "soft": True, "every": None}
"""Whether deletes of a table become inserts; None for a table without a filter."""


def events() -> tuple[list[Event], list[Event]]:
    """The changes of two batches: the rows before are inserted, and then updated or deleted."""
    first: list[Event] = []
    second: list[Event] = []
    for i, (before, after, moves) in enumerate(CASES):
        old = {"id": i, "n": 1 if before else -1}
        new = {"id": i + 100 * moves, "n": 2 if after else -2}
        first.append(("c", None, old))
        second.append(("u", old, new))
    for i, passes in enumerate((True, False), 50):
        row = {"id": i, "n": 1 if passes else -1}
        first.append(("c", None, row))
        second.append(("d", row, None))
    return first, second


def transform(changes: list[Event], soft_delete: bool | None) -> list[Event]:
    """What Flink CDC makes of changes: the filter first, then the converter. Rows show what they were in the source."""
    result: list[Event] = []
    for op, *rows in changes:
        old, new = (
            {**row, "kind": kind} if row is not None and (soft_delete is None or row["n"] > 0) else None
            for row, kind in zip(rows, KINDS[op], strict=True)
        )
        if old is not None and new is not None:
            result.append(("u", old, new))
        elif new is not None:
            result.append(("c", None, new))
        elif old is not None:
            result.append(("c", None, old) if soft_delete else ("d", old, None))
    return result


def apply(changes: list[Event]) -> dict[int, Row]:
    """The rows of a table with a primary key after changes."""
    table: dict[int, Row] = {}
    for _, before, after in changes:
        if before is not None:
            table.pop(before["id"], None)
        if after is not None:
            table[after["id"]] = after
    return table


def fold(name: str) -> dict[int, Row]:
    return apply([one for batch in events() for one in transform(batch, TABLES[name])])


def lines(changes: list[Event]) -> list[tuple[str, Row]]:
    return [(kind, row) for op, *rows in changes for kind, row in zip(KINDS[op], rows, strict=True) if row is not None]


class Recorder(TableWriter):
    """A writer of another package, which gets all changes."""

    def __init__(self) -> None:
        super().__init__(1)
        self.changes: dict[str, list[tuple[str, Row]]] = {}

    def write_table(self, table: SinkTable, batch: Batch) -> None:
        del batch
        rows = [row.asDict() for row in table.changes().collect()]
        self.changes[table.table[-1]] = [(row[KIND], {name: row[name] for name in ("id", "n", "kind")}) for row in rows]


def build(setup: Setup, sink: Sink, *route: Route) -> Ingestion:
    rules = [
        Transform(
            f"shop.{name}",
            filter=None if soft is None else "n > 0",
            projection="*, __data_event_type__ AS kind",
            primary_keys=("id",),
            converter="SOFT_DELETE" if soft else None,
        )
        for name, soft in TABLES.items()
    ]
    feed = setup.feed(value=DebeziumJson())
    return setup.ingestion(sink, feed, transform=rules, route=list(route) or [Route(r"shop\.(\.*)", r"lake.$1")])


def run(setup: Setup, ingestion: Ingestion, writer: Any = None) -> None:
    for batch in events():
        setup.produce(*(change(op, before, after, name) for name in TABLES for op, before, after in batch))
        setup.run(ingestion, writer)


def by_id(rows: Any) -> dict[int, Row]:
    return {row["id"]: row for row in rows}


def test_into_memory(setup: Setup) -> None:
    writer = MemoryWriter()
    run(setup, build(setup, Memory()), writer)

    assert {name: by_id(writer.tables["lake", name].rows()) for name in TABLES} == {n: fold(n) for n in TABLES}


@pytest.mark.reliability
def test_into_delta(setup: Setup) -> None:
    needs_delta()
    run(setup, build(setup, DeltaTables(setup.lake)))

    assert {name: by_id(setup.table("lake", name)) for name in TABLES} == {name: fold(name) for name in TABLES}


@pytest.mark.reliability
@pytest.mark.postgres
def test_into_postgres(setup: Setup, postgres: Postgres) -> None:
    prefix = setup.topic[-8:]
    sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
    run(setup, build(setup, sink, Route(r"shop\.(\.*)", rf"public.{prefix}$1")))

    for name in TABLES:
        stored = postgres.execute(f'SELECT row_to_json(t) FROM "{prefix}{name}" t').splitlines()
        assert by_id(map(json.loads, stored)) == fold(name)


def test_into_a_writer_of_all_changes_and_the_console(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Recorder()
    run(setup, build(setup, Memory()), writer)
    capsys.readouterr()
    setup.checkpoint += "-print"
    setup.run(build(setup, Print()))
    first, second = events()

    printed = capsys.readouterr().out.splitlines()
    for name, soft in TABLES.items():
        assert writer.changes[name] == lines(transform(second, soft))
        shown = [
            f"lake.{name} {kind}[{row['id']}, {row['n']}, {row['kind']}]"
            for kind, row in lines(transform(first + second, soft))
        ]
        assert [line for line in printed if line.startswith(f"lake.{name} ") and "[" in line] == shown


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Json(), marks=pytest.mark.reliability),
        DebeziumJson(),
        pytest.param(CanalJson(), marks=pytest.mark.reliability),
    ],
    ids=["json", "debezium-json", "canal-json"],
)
def test_into_kafka(setup: Setup, kdsl_topic: MakeTopic, value: Any) -> None:
    topics = {name: kdsl_topic(name, partitions=3) for name in TABLES}
    mapping = ";".join(f"lake.{name}:{topic}" for name, topic in topics.items())
    sink = KafkaTopics(
        Cluster(setup.kafka.bootstrap_servers), mapping=mapping, value=value, partition_strategy="hash-by-key"
    )
    run(setup, build(setup, sink))

    for name, topic in topics.items():
        records = sorted(setup.kafka.read(topic), key=lambda record: -(record.partition() or 0))
        read = [(json.loads(r.key() or b""), json.loads(r.value() or b"null")) for r in records]
        last = {json.dumps(key): (key, message) for key, message in read}
        assert apply([show(value, *one) for one in read]) == fold(name)
        assert apply([show(value, *one) for one in last.values()]) == fold(name)


def show(value: Any, key: Row, message: Any) -> Event:
    """A message as a change."""
    if isinstance(value, Json) or message is None:
        return ("c", {"id": key["id"]}, message)
    if isinstance(value, DebeziumJson):
        return message["op"], message["before"], message["after"]
    old, new = (message["old"] or [None])[0], message["data"][0]
    return ("d", new, None) if message["type"] == "DELETE" else ("u", old, new)


def test_tables_with_and_without_a_filter_share_a_topic(setup: Setup, kdsl_topic: MakeTopic) -> None:
    out = kdsl_topic("out")
    sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=out)
    ingestion = build(setup, sink, Route(r"shop\.\.*", "lake.t"))
    setup.produce(*(change("c", None, {"id": i, "n": -i}, name) for i, name in enumerate(("every", "hard"))))
    setup.run(ingestion)

    assert [json.loads(record.value() or b"")["after"] for record in setup.kafka.read(out)] == [
        {"id": 0, "n": 0, "kind": "+I"}
    ]


def test_a_table_without_a_key_gets_what_enters_the_filter(setup: Setup) -> None:
    writer = MemoryWriter()
    rule = Transform(r"\.*.\.*", filter="n > 0")
    setup.produce(change("c", None, {"n": -1}), change("u", {"n": -1}, {"n": 1}), change("u", {"n": -1}, {"n": -2}))
    setup.run(setup.ingestion(Memory(), setup.feed(value=DebeziumJson()), transform=[rule]), writer)

    assert writer.appended == {("shop", "orders"): [{"n": 1}]}
