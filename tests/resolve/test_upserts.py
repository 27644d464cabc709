"""What an upsert table must say, each rule of the reference's factory in the three spellings (RULES UP-1 to UP-11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kdsl import (
    Col,
    DebeziumJson,
    Json,
    KafkaTable,
    Key,
    PrimaryKey,
    UpsertTable,
    metadata,
)
from kdsl.ddl.load import read_definition
from kdsl.declare.definition import TableDef
from kdsl.declare.document import read_tables
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.plan.build import read_plan
from kdsl.plan.show import show
from kdsl.resolve import problems, resolve

OPTIONS = {"connector": "upsert-kafka", "topic": "users", "key.format": "json", "value.format": "json"}


def ddl(key: str | None = "id", columns: str = "id BIGINT, name STRING", **options: str | None) -> TableDef:
    sample = OPTIONS | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    clause = ", ".join(f"'{name}' = '{value}'" for name, value in sample.items() if value is not None)
    end = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    return read_definition(f"CREATE TABLE users ({columns}{end}) WITH ({clause})")


def yaml(**options: str | None) -> TableDef:
    sample = OPTIONS | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    lines = "\n".join(f"  {name}: {value}" for name, value in sample.items() if value is not None)
    (table,) = read_tables(
        f"name: users\ncolumns: [{{name: id, type: BIGINT}}]\nprimary_key: [id]\noptions:\n{lines}\n"
    )
    return table


def problems_of(table: TableDef, direction: Direction = "read") -> list[tuple[str, str]]:
    return [(p.code, p.fix) for p in problems(table, direction)]


def test_a_valid_table_has_no_problems() -> None:
    for table in (ddl(), yaml()):
        assert problems_of(table) == problems_of(table, "write") == []
        assert (table.primary_key, table.message_key) == (("id",), ("id",))
        assert not table.columns[0].type.nullable


def test_without_a_primary_key() -> None:
    """UP-1: the way to say it is that of the declaration."""

    class Users(UpsertTable, topic="users", key=Json(), value=Json()):
        id: Col[int]

    fixes = {
        fix for table in (Users.definition(), ddl(key=None)) for code, fix in problems_of(table) if code == "upsert-key"
    }
    document = read_tables(
        "name: users\ncolumns: [{name: id, type: BIGINT}]\noptions: {connector: upsert-kafka, topic: users, "
        "key.format: json, value.format: json}"
    )

    assert fixes == {"declare the columns of the key as PrimaryKey[...]", "add PRIMARY KEY (...) NOT ENFORCED"}
    assert problems_of(document[0])[0] == ("upsert-key", "add primary_key: [...]")


@pytest.mark.parametrize("side", ["key", "value"])
def test_without_one_of_the_formats(side: str) -> None:
    """UP-2."""
    without: dict[str, Any] = {f"{side}__format": None}
    ((code, fix),) = problems_of(ddl(**without))

    assert (code, fix) == (f"{side}-format", f"add one, such as '{side}.format' = 'json'")


@pytest.mark.parametrize(
    ("option", "value", "fix"),
    [
        ("format", "json", "name a 'key.format' and a 'value.format'"),
        ("key__fields", "id", "remove it: the columns of the PRIMARY KEY are the message key"),
        ("scan__startup__mode", "earliest-offset", "remove it: an upsert table is always read from the beginning"),
        ("scan__startup__timestamp_millis", "0", "remove it: an upsert table is always read from the beginning"),
        ("scan__startup__specific_offsets", "partition:0,offset:1", "remove it: an upsert table is always read from"),
        ("sink__partitioner", "fixed", "remove it: changes of one key must go to one partition"),
    ],
)
def test_what_it_does_not_have(option: str, value: str, fix: str) -> None:
    """UP-3, UP-4."""
    for table in (ddl(**{option: value}), yaml(**{option: value})):
        ((code, shown),) = problems_of(table)
        assert code == "option-unknown"
        assert shown.startswith(fix)


@pytest.mark.parametrize(("side", "code"), [("key", "key-format-changes"), ("value", "upsert-format")])
def test_formats_that_carry_changes(side: str, code: str) -> None:
    """UP-5, UP-6."""
    actual = problems(ddl(**{f"{side}__format": "debezium-json"}), "read")

    assert [p.code for p in actual] == [code]
    assert "debezium-json" in actual[0].message


def test_the_key_has_the_order_of_the_columns() -> None:
    """UP-7."""
    table = ddl(key="b, a", columns="a INT, c INT, b INT")

    assert (table.primary_key, table.message_key) == (("b", "a"), ("a", "b"))
    assert problems_of(table) == []


@pytest.mark.parametrize(
    ("rows", "interval", "good"),
    [
        (None, None, True), ("0", "0 s", True), ("10", "1 s", True), ("10", None, False), (None, "1 s", False),
        ("0", "1 s", False), ("10", "0 s", False), ("-1", "1 s", False), ("-1", "0 s", False),
    ],
)  # fmt: skip
def test_the_buffer_has_both_of_its_options_or_none(rows: str | None, interval: str | None, good: bool) -> None:
    """UP-8, UP-9: the source does not look at it."""
    table = ddl(sink__buffer_flush__max_rows=rows, sink__buffer_flush__interval=interval)

    assert problems_of(table) == []
    assert [code for code, _ in problems_of(table, "write")] == ([] if good else ["upsert-buffer"])


def test_a_group_is_not_needed() -> None:
    """UP-10: the group that a bound is of has a name where none is given."""
    table = ddl(scan__bounded__mode="group-offsets")

    assert problems_of(table) == []
    assert read_plan(resolve(table, "read")).group_id == "KafkaSource-users"


def test_metadata_in_the_primary_key() -> None:
    class Users(UpsertTable, topic="users", key=Json(), value=Json(), primary_key=["id", "headers"]):
        id: Col[int]
        headers: Col[dict[str, bytes | None]] = metadata("headers")

    (problem,) = problems(Users.definition(), "read")

    assert problem.message == "a metadata column cannot be part of the message key"
    assert problem.where.column == "headers"


def test_a_key_column_that_is_not_in_the_primary_key() -> None:
    class Users(UpsertTable, topic="users", key=Json(), value=Json()):
        id: PrimaryKey[int]
        region: Key[str]

    (problem,) = problems(Users.definition(), "read")

    assert problem.message.startswith("the message key is 'id' and 'region', and the primary key is 'id'")


def test_real_time_mode_gathers_nothing() -> None:
    class Users(UpsertTable, topic="users", key=Json(), value=Json(), transport="jvm", latency="realtime"):
        id: PrimaryKey[int]

    for direction in ("read", "write"):
        assert "upsert-realtime" in {p.code for p in problems(Users.definition(), direction)}


@pytest.mark.parametrize("changelog", ["full", "net", "upsert"])
@pytest.mark.parametrize("column", ["seen", "later"])
def test_a_watermark_on_any_column(column: str, changelog: str) -> None:
    columns = "id BIGINT, seen TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', later AS seen + INTERVAL '1' SECOND, "
    table = ddl(columns=f"{columns}WATERMARK FOR {column} AS {column}", scan__changelog__mode=changelog)

    assert problems_of(table) == problems_of(table, "write") == []


class TestTheOtherKindOfTable:
    """What belongs to one connector, reported where the other has it."""

    def first(self, table: TableDef) -> Problem:
        return problems(table, "read")[0]

    def test_arguments_of_upsert_tables(self) -> None:
        class Users(KafkaTable, topic="users", value=Json(), buffer_rows=1):  # type: ignore[call-arg]  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
            id: Col[int]

        result = self.first(Users.definition())

        assert result.message == "a KafkaTable has no argument buffer_rows="
        assert result.fix == "remove it, or declare an UpsertTable, which has it"

    def test_options_of_upsert_tables(self) -> None:
        options: dict[str, Any] = {"connector": "kafka", "key__format": None, "sink__buffer_flush__max_rows": "1"}
        result = self.first(ddl(key=None, **options))

        assert result.message == "the connector 'kafka' has no option 'sink.buffer-flush.max-rows'"
        assert result.fix == "remove it, or use the connector 'upsert-kafka', which has it"

    def test_a_primary_key_over_rows_that_are_only_new(self) -> None:
        class Users(KafkaTable, topic="users", value=Json(), startup="earliest"):
            id: PrimaryKey[int]

        actual = problems(Users.definition(), "read")

        assert any("declare an UpsertTable" in p.fix for p in actual)

    def test_change_data_in_an_upsert_table(self) -> None:
        class Users(UpsertTable, topic="users", key=Json(), value=DebeziumJson()):
            id: PrimaryKey[int]

        assert "or a KafkaTable for this format" in self.first(Users.definition()).fix


PARTITION = {"scan__changelog__state": "partition"}


class TestStateByPartition:
    def test_a_valid_table_has_no_problems(self) -> None:
        for table in (ddl(**PARTITION), yaml(**PARTITION)):
            assert problems_of(table) == problems_of(table, "write") == []
        plan = read_plan(resolve(ddl(**PARTITION, scan__changelog__state__ttl="1 h"), "read"))
        assert plan.upserts is not None
        assert plan.upserts.by_partition
        assert plan.upserts.ttl == timedelta(hours=1)
        assert "which a stream keeps in files (by partition), for 1 h after its last record" in show(plan)

    def test_several_topics_are_refused(self) -> None:
        for options in ({"topic": "a;b"}, {"topic": None, "topic_pattern": "users.*"}):
            ((code, fix),) = problems_of(ddl(**PARTITION, **options))

            assert code == "changelog-state"
            assert fix == "declare a table for each topic, or write 'scan.changelog.state' = 'key'"

    def test_a_key_format_with_a_registry_has_no_problems(self) -> None:
        registry = {"key__avro_confluent__url": "http://registry"}

        assert problems_of(ddl(**PARTITION, key__format="avro-confluent", **registry)) == []

    def test_change_data_needs_the_message_key(self) -> None:
        class Users(KafkaTable, topic="users", value=DebeziumJson(), cdc_events_duplicate=True, primary_key=["id"],
                    changelog_state="partition", startup="earliest"):  # fmt: skip
            id: Col[int]

        class Keyed(KafkaTable, topic="users", key=Json(), value=DebeziumJson(), cdc_events_duplicate=True,
                    changelog_state="partition", startup="earliest"):  # fmt: skip
            id: PrimaryKey[int]

        ((code, fix),) = problems_of(Users.definition())
        assert code == "changelog-state"
        assert "PrimaryKey[...]" in fix
        assert "changelog_state='key'" in fix
        assert problems_of(Keyed.definition()) == []

    def test_a_table_without_rows_by_key_is_refused(self) -> None:
        class Users(KafkaTable, topic="users", value=Json(), changelog_state="partition", state_ttl="1 h"):
            id: Col[int]

        assert {code for code, _ in problems_of(Users.definition())} == {"changelog-option"}

    def test_the_transport_jvm_is_refused(self) -> None:
        ((code, fix),) = problems_of(ddl(**PARTITION, transport="jvm"))

        assert code == "transport"
        assert "'transport' = 'librdkafka'" in fix

    @pytest.mark.parametrize("state", ["auto", "key"])
    def test_rows_that_are_found_by_key_may_expire(self, state: str) -> None:
        assert problems_of(ddl(scan__changelog__state=state, scan__changelog__state__ttl="1 h")) == []

    def test_a_read_without_before_images_has_no_such_state(self) -> None:
        plan = read_plan(resolve(ddl(**PARTITION, scan__changelog__mode="upsert"), "read"))

        assert plan.upserts is not None
        assert not plan.upserts.by_partition

    def test_net_changes(self) -> None:
        plan = read_plan(resolve(ddl(scan__changelog__mode="net"), "read"))

        assert plan.upserts is not None
        assert plan.upserts.images
        assert plan.upserts.net
        assert "one change of each key in a batch" in show(plan)
