"""Change data that is compared with the last row of each key: what the option needs, in the three spellings."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from kdsl import (
    CanalJson,
    Col,
    DebeziumAvroConfluent,
    DebeziumJson,
    Format,
    Json,
    KafkaTable,
    MaxwellJson,
    OggJson,
    PrimaryKey,
    Virtual,
    computed,
    virtual,
)
from kdsl.ddl.load import read_definition
from kdsl.declare.connector import ChangelogMode
from kdsl.declare.definition import TableDef
from kdsl.declare.document import read_tables
from kdsl.errors import Problem
from kdsl.plan.build import read_plan
from kdsl.plan.model import Upserts
from kdsl.plan.show import show
from kdsl.resolve import problems, resolve

OPTIONS = {"connector": "kafka", "topic": "users", "format": "debezium-json", "cdc-events-duplicate": "true"}


def ddl(columns: str = "id BIGINT, name STRING", key: str | None = "id", **options: str | None) -> TableDef:
    sample = OPTIONS | {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    clause = ", ".join(f"'{name}' = '{value}'" for name, value in sample.items() if value is not None)
    end = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    return read_definition(f"CREATE TABLE users ({columns}{end}) WITH ({clause})")


def yaml(**options: str) -> TableDef:
    sample = OPTIONS | options
    lines = "\n".join(f"  {name}: {value}" for name, value in sample.items())
    (table,) = read_tables(
        f"name: users\ncolumns: [{{name: id, type: BIGINT}}, {{name: name, type: STRING}}]\nprimary_key: [id]\n"
        f"options:\n{lines}\n"
    )
    return table


def change_data(value: Format | None = None, **arguments: Any) -> TableDef:
    class Users(
        KafkaTable,
        topic="users",
        value=value or DebeziumJson(),
        cdc_events_duplicate=True,
        primary_key=["id"],
        **arguments,
    ):
        id: Col[int]
        name: Col[str | None]

    return Users.definition()


def problems_of(table: TableDef) -> list[Problem]:
    return [p for p in problems(table, "read") if p.code != "group"]


@pytest.mark.parametrize(
    "value", [DebeziumJson(), CanalJson(), MaxwellJson(), OggJson(), DebeziumAvroConfluent(url="http://registry")]
)
def test_each_format_of_change_data_can_be_compared_with_state(value: Format) -> None:
    table = change_data(value)

    assert problems_of(table) == []
    assert table.normalized
    assert read_plan(resolve(table, "read")).upserts == Upserts(("id",), images=True, events=True)


def test_the_three_spellings_mean_the_same() -> None:
    tables = (change_data(), ddl(), yaml())

    assert [problems_of(table) for table in tables] == [[], [], []]
    assert [read_plan(resolve(table, "read")).upserts for table in tables] == [Upserts(("id",), events=True)] * 3
    assert not any(table.columns[0].type.nullable for table in tables)


def test_options_of_the_state_are_those_of_upsert_tables() -> None:
    table = change_data(changelog="net", changelog_state="key", state_ttl="1 h", state_location="/mnt/states")

    assert read_plan(resolve(table, "read")).upserts == Upserts(
        ("id",), events=True, state="key", net=True, ttl=timedelta(hours=1), location="/mnt/states"
    )


def test_without_the_option_there_is_no_state() -> None:
    table = ddl(cdc_events_duplicate=None)

    assert not table.normalized
    assert read_plan(resolve(table, "read")).upserts is None


def test_a_plan_shows_the_key_of_the_state() -> None:
    shown = show(read_plan(resolve(ddl("a INT, b INT, v STRING", "b, a"), "read")))

    assert "by b, a; of rows before a change only the key counts" in shown
    assert "against the last row of each key, which a stream keeps in files (a sample of its keys decides how)" in shown


def test_a_primary_key_is_needed() -> None:
    class Users(KafkaTable, topic="users", value=DebeziumJson(), cdc_events_duplicate=True):
        id: Col[int]

    (in_python,), (in_sql,) = problems_of(Users.definition()), problems_of(ddl(key=None))

    assert in_python.code == in_sql.code == "cdc-duplicate-key"
    assert in_python.message == (
        "cdc_events_duplicate=True keeps the last row of each key, but the table declares no primary key"
    )
    assert in_python.fix == (
        "name its columns with primary_key=[...]; where the message key has them, too, declare them as PrimaryKey[...]"
    )
    assert in_sql.message.startswith("'cdc-events-duplicate' = 'true' keeps the last row of each key")
    assert in_sql.fix == "add PRIMARY KEY (...) NOT ENFORCED"


def test_a_format_that_only_inserts_has_no_changes() -> None:
    actual = problems_of(ddl(format="json", key=None))

    assert [p.code for p in actual] == ["cdc-duplicate-format", "cdc-duplicate-key"]
    assert actual[0].message.endswith("but the value format 'json' only inserts rows")
    assert "upsert table" in actual[0].fix


def test_positions_of_records_do_not_identify_rows() -> None:
    columns = "id BIGINT, p INT METADATA FROM 'partition' VIRTUAL, t STRING METADATA FROM 'topic' VIRTUAL"
    table = f"{columns}, s STRING METADATA FROM 'value.source.table' VIRTUAL"
    (actual,) = problems_of(ddl(table, "id, p"))

    assert (actual.code, actual.where.column) == ("cdc-duplicate-key", "p")
    assert actual.message == "the primary key has the record's partition, which does not identify a row of the source"
    assert problems_of(ddl(table, "id, t, s")) == []


@pytest.mark.parametrize(("option", "value"), [("scan__changelog__mode", "upsert"), ("scan__changelog__state", "key")])
def test_options_of_the_state_without_state(option: str, value: str) -> None:
    (actual,) = problems_of(ddl(cdc_events_duplicate=None, **{option: value}))

    assert actual.code == "changelog-option"
    assert actual.message == f"'{option.replace('__', '.')}' = '{value}', but the table does not keep rows by key"
    assert "'cdc-events-duplicate' = 'true'" in actual.fix


def test_real_time_mode_keeps_no_rows() -> None:
    assert "upsert-realtime" in {p.code for p in problems(change_data(transport="jvm", latency="realtime"), "read")}


@pytest.mark.parametrize("changelog", ["full", "upsert"])
def test_a_watermark_on_a_computed_column(changelog: ChangelogMode) -> None:
    class Users(KafkaTable, topic="users", key=Json(), value=DebeziumJson(), cdc_events_duplicate=True,
                changelog=changelog):  # fmt: skip
        id: PrimaryKey[int]
        seen: Virtual[datetime] = virtual("timestamp")

        @computed(watermark="5 seconds")
        def at(self) -> datetime:
            return self.seen

    assert problems_of(Users.definition()) == []


def test_a_sink_does_not_look_at_it() -> None:
    assert problems(ddl(), "write") == []


def test_upsert_tables_always_keep_rows() -> None:
    table = ddl(connector="upsert-kafka", format=None, key__format="json", value__format="json")
    (actual,) = problems(table, "read")

    assert (actual.code, actual.fix) == (
        "option-unknown",
        "remove it: an upsert table always keeps the last row of each key",
    )


def test_message_keys_may_contain_the_primary_key() -> None:
    table = ddl(key__format="json", key__fields="id")

    assert problems_of(table) == []
    assert read_plan(resolve(table, "read")).key is not None
    assert problems_of(ddl(key__format="json", key__fields="id", value__fields_include="EXCEPT_KEY")) == []


def test_the_key_of_a_choice_of_columns_is_read_too() -> None:
    table = ddl("id BIGINT, name STRING, size INT", key__format="json", key__fields="id")
    plan = read_plan(resolve(table, "read"), ["size"])

    assert plan.columns.names == ("_row_kind", "id", "size")
    assert plan.key is not None
    assert plan.key.columns == ("id",)


class TestTruncates:
    def test_rows_can_be_deleted_with_state(self) -> None:
        assert problems_of(change_data(DebeziumJson(truncate="apply"))) == []
        assert problems_of(change_data(DebeziumAvroConfluent(url="http://registry", truncate="apply"))) == []
        (actual,) = problems_of(ddl(cdc_events_duplicate=None, debezium_json__truncate="apply"))
        assert (actual.code, actual.message) == (
            "debezium-truncate",
            "the format 'debezium-json' has truncate = 'apply', which deletes every existing row, but the table does "
            "not keep rows",
        )
        assert "'cdc-events-duplicate'" in actual.fix

    def test_the_mode_without_state_keeps_none(self) -> None:
        (actual,) = problems_of(change_data(DebeziumJson(truncate="apply"), changelog="upsert"))

        assert actual.code == "cdc-duplicate-truncate"
        assert actual.fix == (
            "set changelog='full', or debezium-json.truncate = 'skip', with which the rows of a truncated table stay"
        )

    def test_deletes_cannot_be_identified_across_several_topics(self) -> None:
        (actual,) = problems_of(ddl(topic="a;b", debezium_json__truncate="apply"))

        assert actual.code == "cdc-duplicate-truncate"
        assert "with several topics" in actual.message
