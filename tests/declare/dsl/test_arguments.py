"""The arguments of a class statement."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest

from kdsl import Col, Csv, Json, KafkaTable, TopicSettings, UpsertTable
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import TableDef
from kdsl.declare.dsl import arguments
from kdsl.declare.dsl.keywords import CommonKeywords, TableKeywords, UpsertTableKeywords
from kdsl.errors import listing
from kdsl.formats import format_names


def define(**sample: Any) -> TableDef:
    """The definition of a table with the given arguments."""

    class Table(KafkaTable, **sample):
        a: Col[int]

    return Table.definition()


def problems_of(**sample: Any) -> list[tuple[str, str]]:
    """What is said of the arguments, and what to write instead."""
    return [(p.message, p.fix) for p in define(**sample).problems]


ARGUMENTS = arguments.arguments(KafkaOptions)


KEYWORDS: dict[type, Any] = {KafkaTable: TableKeywords, UpsertTable: UpsertTableKeywords}


@pytest.mark.parametrize("cls", [KafkaTable, UpsertTable])
def test_type_checkers_see_the_existing_arguments(cls: type[KafkaTable]) -> None:
    assert KEYWORDS[cls].__optional_keys__ == set(arguments.arguments(cls.__kdsl_options__))


@pytest.mark.parametrize("keywords", [TableKeywords, UpsertTableKeywords])
def test_every_argument_is_documented_where_its_type_is_or_as_an_option(keywords: Any) -> None:
    doc = f"{CommonKeywords.__doc__}{keywords.__doc__}"
    options = attrs.fields_dict(UpsertOptions if keywords is UpsertTableKeywords else KafkaOptions)

    documented = set(re.findall(r"^\s+(\w+): ", doc, re.MULTILINE))  # Python 3.13 and later remove the indentation
    assert set(keywords.__annotations__) - documented - set(options) == set()


def test_only_upsert_tables_take_the_arguments_of_the_buffer() -> None:
    assert set(arguments.arguments(UpsertOptions)) - set(ARGUMENTS) == {"buffer_rows", "buffer_interval"}


def test_every_option_of_the_connector_is_an_argument_and_the_other_way_round() -> None:
    options = set(attrs.fields_dict(KafkaOptions))

    assert set(ARGUMENTS) == options - {
        "startup_timestamp", "startup_offsets", "bounded_timestamp", "bounded_offsets",
        "semantic", "watermark_emit", "watermark_update", "watermark_idle", "transaction_naming",
        "dead_letter_topic", "dead_letter_max_count", "dead_letter_batch_reads", "dead_letter_properties",
        "topic_partitions", "topic_replication_factor", "topic_configs",
    } | {
        "topic_settings", "dead_letters", "key", "value", "group_id", "properties", "name", "comment", "key_fields",
        "primary_key",
    }  # fmt: skip


def test_options_are_those_of_the_connector() -> None:
    result = define(
        topic_pattern="orders-.*",
        key_prefix="k_",
        value_prefix="v_",
        value_fields="EXCEPT_KEY",
        max_records_per_trigger=5,
        max_records_per_partition=6,
        delivery="none",
        transport="librdkafka",
    )

    assert result.options == KafkaOptions(
        topic_pattern="orders-.*",
        key_prefix="k_",
        value_prefix="v_",
        value_fields="EXCEPT_KEY",
        max_records_per_trigger=5,
        max_records_per_partition=6,
        delivery="none",
        transport="librdkafka",
    )
    assert result.problems == ()


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("a", ("a",)),
        ("a;b", ("a", "b")),
        ("a ; b", ("a", "b")),
        (["a", "b"], ("a", "b")),
        (("a", "b;c"), ("a", "b", "c")),
    ],
)
def test_topics_are_one_or_several_strings(topic: Any, expected: tuple[str, ...]) -> None:
    assert define(topic=topic).options.topic == expected


@pytest.mark.parametrize(
    ("startup", "expected"),
    [
        ("group-offsets", {"startup": "group-offsets"}),
        ("earliest", {"startup": "earliest-offset"}),
        ("latest", {"startup": "latest-offset"}),
        ("earliest-offset", {"startup": "earliest-offset"}),
        ("Latest-Offset", {"startup": "latest-offset"}),
        (datetime(2025, 1, 1, tzinfo=UTC), {"startup": "timestamp", "startup_timestamp": 1735689600000}),
        (
            datetime(2025, 1, 1, 1, 0, 0, 1999, tzinfo=timezone(timedelta(hours=1))),
            {"startup": "timestamp", "startup_timestamp": 1735689600001},
        ),
        (
            {0: 42, 1: 300},
            {"startup": "specific-offsets", "startup_offsets": {0: 42, 1: 300}},
        ),
    ],
    ids=str,
)
def test_one_argument_sets_where_a_read_starts(startup: Any, expected: dict[str, Any]) -> None:
    result = define(topic="a", startup=startup)

    assert result.options == KafkaOptions(topic=("a",), **expected)
    assert result.problems == ()


@pytest.mark.parametrize(
    ("discovery", "expected"),
    [("1 min", timedelta(minutes=1)), (timedelta(seconds=5), timedelta(seconds=5)), ("PT-1S", timedelta(seconds=-1))],
)
def test_discovery_is_a_duration(discovery: Any, expected: timedelta) -> None:
    assert define(discovery=discovery).options.discovery == expected


def test_formats_are_objects_or_names() -> None:
    result = define(key="csv", value=Json())

    assert (result.key_format, result.value_format) == (Csv(), Json())


def test_client_settings_go_by_javas_names() -> None:
    result = define(group_id="g", properties={"max.poll.records": 5, "check.crcs": False, "acks": "all"})

    assert dict(result.properties) == {"acks": "all", "check.crcs": "false", "group.id": "g", "max.poll.records": "5"}


def test_arguments_are_inherited() -> None:
    class Shop(KafkaTable, value=Json(), properties={"acks": "all", "linger.ms": 5}, startup="earliest"):
        pass

    class Orders(Shop, topic="orders", properties={"linger.ms": 7}, key="json"):
        a: Col[int]

    class Other(Orders, topic="other", value=None):  # type: ignore[arg-type]
        pass

    table = Orders.definition()
    assert table.options == KafkaOptions(topic=("orders",), startup="earliest-offset")
    assert (table.key_format, table.value_format) == (Json(), Json())
    assert dict(table.properties) == {"acks": "all", "linger.ms": "7"}
    assert Other.definition().options.topic == ("other",)
    assert Other.definition().value_format is None


VALID = listing(sorted(ARGUMENTS))
STARTS = "'group-offsets', 'earliest', 'latest', 'earliest-offset' and 'latest-offset'"
START_FIX = f"write one of {STARTS}, an aware datetime, or offsets as {{0: 42, 1: 300}}"


@pytest.mark.parametrize(
    ("settings", "message", "fix"),
    [
        ({"topc": "a"}, "a table class has no argument topc= (did you mean 'topic'?)", f"the arguments are {VALID}"),
        ({"x": 1}, "a table class has no argument x=", f"the arguments are {VALID}"),
        (
            {"startup_timestamp": 5},
            "a table class has no argument startup_timestamp=",
            "set startup= to an aware datetime",
        ),
        (
            {"key_fields": "a"},
            "key_fields= is 'a', which is not a list of column names",
            "write key_fields=('user_id', 'item_id'), the names of columns",
        ),
        (
            {"bootstrap_servers": "a:1"},
            "a table class has no argument bootstrap_servers=",
            "pass the cluster when you read or write the table: Cluster('host:port')",
        ),
        (
            {"topic": 5},
            "topic= is 5, which is not a topic name or a list of them",
            "write topic='orders', or a list of names",
        ),
        (
            {"topic": [1]},
            "topic= is [1], which is not a topic name or a list of them",
            "write topic='orders', or a list of names",
        ),
        ({"startup": "earlist"}, "startup= is 'earlist' (did you mean 'earliest'?)", START_FIX),
        ({"startup": 5}, "startup= is 5, where a read cannot start", START_FIX),
        ({"startup": "timestamp"}, "startup= is 'timestamp', but in Python it takes the time itself", START_FIX),
        (
            {"startup": "specific-offsets"},
            "startup= is 'specific-offsets', but in Python it takes the offsets themselves",
            START_FIX,
        ),
        (
            {"startup": datetime(2025, 1, 1)},
            "startup= is the time 2025-01-01 00:00:00, which does not have a time zone",
            "add a time zone, as in datetime(2025, 1, 1, tzinfo=UTC)",
        ),
        (
            {"startup": {0: -1}},
            "startup= is {0: -1}, but partitions and offsets are integers from 0",
            "write startup={0: 42, 1: 300}",
        ),
        (
            {"startup": {}},
            "startup= is {}, but partitions and offsets are integers from 0",
            "write startup={0: 42, 1: 300}",
        ),
        ({"discovery": 5}, "discovery= is 5, which is not a duration", "write '5 min', or a timedelta"),
        (
            {"watermark_idle": "1 s"},
            "a table class has no argument watermark_idle=",
            "remove it: the option has no effect in Spark",
        ),
        (
            {"discovery": "5 mim"},
            "discovery= is '5 mim': 'mim' is not a unit of time; the units are d, h, min, s, ms, us",
            "write '5 min', or a timedelta",
        ),
        ({"value": Json}, "value= is the class Json, not a format", "write value=Json()"),
        ({"key": 5}, "key= is 5, which is not a format", "write key=Json(), or another format, or its name"),
        (
            {"value": "jsn"},
            "value= cannot be read: there is no format 'jsn' (did you mean 'json'?); "
            f"there are {listing(format_names())}",
            "name one of them, or write the format itself",
        ),
        (
            {"properties": "acks=all"},
            "properties= is a str, but it must map names of Kafka client settings to values",
            "write properties={'max.poll.records': 500}",
        ),
        (
            {"properties": {"properties.acks": "all"}},
            "properties= names 'properties.acks' with the prefix that they have in SQL",
            "write 'acks'",
        ),
        (
            {"group_id": "a", "properties": {"group.id": "b"}},
            "group_id= is 'a', but properties= has 'group.id' 'b'",
            "remove one of them",
        ),
    ],
    ids=str,
)
def test_mistakes_are_reported_with_what_to_write(settings: dict[str, Any], message: str, fix: str) -> None:
    assert problems_of(**settings) == [(message, fix)]


def test_declaring_never_fails_and_all_problems_are_reported_at_once() -> None:
    assert len(problems_of(topc="a", startup="x", discovery="y", value="z", properties=5)) == 5


def test_each_problem_names_the_line_of_its_argument() -> None:
    class Table(
        KafkaTable,
        topc="a",  # type: ignore[call-arg]  # line of topc
        value="jsn",  # line of value
    ):
        a: Col[int]

    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    expected = [
        next(i for i, line in enumerate(lines, 1) if line.endswith(f"# line of {n}")) for n in ("topc", "value")
    ]
    assert [(p.where.file, p.where.line) for p in Table.definition().problems] == [(__file__, n) for n in expected]
    assert Table.definition().option_locations["value.format"].line == expected[1]


def test_the_locations_of_options_are_known_by_their_keys() -> None:
    result = define(topic="a", startup="earliest", key="json", value="json", properties={}, group_id="g")

    assert set(result.option_locations) == {
        "topic", "scan.startup.mode", "scan.startup.timestamp-millis", "scan.startup.specific-offsets",
        "key.format", "value.format", "format", "properties", "properties.group.id",
    }  # fmt: skip


def test_topic_settings_are_three_options_and_what_is_not_declared_stays_away() -> None:
    result = define(topic="a", topic_settings=TopicSettings(4, configs={"retention.ms": 60000, "preallocate": True}))

    assert result.options == KafkaOptions(
        topic=("a",), topic_partitions=4, topic_configs={"retention.ms": "60000", "preallocate": "true"}
    )
    assert define(topic="a", topic_settings=TopicSettings()).options == KafkaOptions(topic=("a",))


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        ({"topic_settings": 12}, "topic_settings= is 12, which is not TopicSettings", "TopicSettings(partitions=12)"),
        ({"partitions": 12}, "a table class has no argument partitions=", "use topic_settings=TopicSettings("),
        ({"topic_partitions": 12}, "has no argument topic_partitions=", "use topic_settings=TopicSettings("),
    ],
)
def test_wrong_topic_settings_say_what_to_write(arguments: dict[str, Any], message: str, fix: str) -> None:
    (problem,) = define(topic="a", **arguments).problems

    assert message in problem.message
    assert fix in problem.fix
