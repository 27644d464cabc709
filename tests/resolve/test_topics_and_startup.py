"""Topics (RULES TOP) and startup (RULES ST)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kdsl import Col, KafkaTable
from kdsl.declare.config import Scalar
from kdsl.declare.start_and_end import offset_pairs
from kdsl.errors import ResolveError
from kdsl.resolve import Start, Stop, Topics, problems, resolve
from kdsl.resolve.startup import discovery_of, launch_start
from tests.resolve.tables import codes, errors, table, warnings

SPECIFIC: dict[str, Scalar] = {"scan.startup.mode": "specific-offsets"}


class TestTopics:
    def test_a_list_is_split_at_semicolons_and_trimmed(self) -> None:
        assert resolve(table(options={"topic": "a; b"}), "read").topics == Topics(("a", "b"))

    def test_a_pattern_instead_of_names(self) -> None:
        topics = resolve(table(options={"topic-pattern": "orders-.*"}, without=("topic",)), "read").topics

        assert topics == Topics(pattern="orders-.*")

    @pytest.mark.parametrize("direction", ["read", "write"])
    def test_not_both(self, direction: str) -> None:
        result = errors(table(options={"topic-pattern": "o.*"}), direction)  # type: ignore[arg-type]

        assert result[0].code == "topic-and-pattern"
        assert "'topic': 'orders' and 'topic-pattern': 'o.*' are both set" in result[0].message

    def test_one_of_them(self) -> None:
        assert codes(table(without=("topic",))) == ["topic-missing"]

    @pytest.mark.parametrize("name", ["", "a b", "a/b", ".", "..", "x" * 250, "ä"])
    def test_names_that_kafka_refuses(self, name: str) -> None:
        assert codes(table(options={"topic": name})) == ["topic-name"]

    def test_an_empty_pattern_matches_no_topic(self) -> None:
        (problem,) = errors(table(options={"topic-pattern": ""}, without=("topic",)))

        assert problem.message == "'topic-pattern': '' matches no topic"

    def test_a_pattern_is_a_regular_expression(self) -> None:
        (problem,) = errors(table(options={"topic-pattern": "a("}, without=("topic",)))

        assert problem.code == "topic-pattern"
        assert "at position 1" in problem.message

    @pytest.mark.parametrize(("option", "value"), [("topic", "a;b"), ("topic-pattern", "a.*")])
    def test_a_sink_of_several_topics_needs_the_topic_of_each_row(self, option: str, value: str) -> None:
        columns = ("id INT", "t STRING METADATA FROM topic VIRTUAL")
        definition = table(*columns, options={option: value}, without=("topic",) if option != "topic" else ())

        assert codes(definition, "write") == ["sink-topic"]
        assert codes(definition, "read") == []

    def test_a_sink_of_several_topics_with_a_topic_column_is_valid(self) -> None:
        assert codes(table("id INT", "topic STRING METADATA", options={"topic": "a;b"}), "write") == []


class TestStartup:
    def test_group_offsets_is_the_default(self) -> None:
        resolved = resolve(table(without=("properties.group.id",)), "read")

        assert resolved.start == Start("group-offsets")
        assert resolved.group_id == "KafkaSource-orders"

    @pytest.mark.parametrize(
        ("settings", "start"),
        [
            ({"scan.startup.mode": "earliest-offset"}, Start("earliest")),
            ({"scan.startup.mode": "LATEST-OFFSET"}, Start("latest")),
            (
                {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 1655395200000},
                Start("timestamp", timestamp=1655395200000),
            ),
            (
                {**SPECIFIC, "scan.startup.specific-offsets": "partition:1,offset:300;partition:0,offset:42"},
                Start("specific-offsets", offsets=(("orders", 0, 42), ("orders", 1, 300))),
            ),
            ({"properties.auto.offset.reset": "Earliest"}, Start("group-offsets", reset="earliest")),
        ],
    )
    def test_every_mode(self, settings: dict[str, Scalar], start: Start) -> None:
        assert resolve(table(options=settings), "read").start == start

    def test_an_unknown_mode(self) -> None:
        (problem,) = errors(table(options={"scan.startup.mode": "earliest"}))

        assert problem.code == "option-value"
        assert "(did you mean 'earliest-offset'?)" in problem.message

    def test_timestamp_needs_a_time(self) -> None:
        assert codes(table(options={"scan.startup.mode": "timestamp"})) == ["startup-timestamp"]

    def test_a_time_in_seconds_causes_a_warning(self) -> None:
        settings: dict[str, Scalar] = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 1655395200}

        assert warnings(table(options=settings)) == ["startup-seconds"]

    @pytest.mark.parametrize("millis", ["-1", str(1 << 63)])
    def test_a_time_that_no_record_has(self, millis: str) -> None:
        settings: dict[str, Scalar] = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": millis}

        assert codes(table(options=settings)) == ["startup-timestamp"]

    def test_an_early_time_of_a_class_is_reported_in_terms_of_the_class(self) -> None:
        class Early(KafkaTable, topic="a", value="json", startup=datetime(1970, 1, 1, tzinfo=UTC)):
            x: Col[int]

        (problem,) = problems(Early.definition(), "read")
        assert problem.message == "startup= is 0 ms after 1970, which is before March 1973"
        assert problem.fix == "check the time"

    def test_specific_offsets_need_offsets(self) -> None:
        assert codes(table(options=SPECIFIC)) == ["startup-offsets"]

    def test_specific_offsets_need_one_topic(self) -> None:
        settings: dict[str, Scalar] = {
            **SPECIFIC,
            "scan.startup.specific-offsets": "partition:0,offset:1",
            "topic": "a;b",
        }

        assert codes(table(options=settings)) == ["startup-topics"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "x",
            "partition:0",
            "partition:0,offset:",
            "partition:0, offset:1",
            "offset:1,partition:0",
            "partition:0,offset:1;;",
            "partition:0,offset:-1",
        ],
    )
    def test_malformed_offsets(self, text: str) -> None:
        (problem,) = errors(table(options={**SPECIFIC, "scan.startup.specific-offsets": text}))

        assert problem.code == "startup-offsets"
        assert problem.fix == "write 'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:300'"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("partition:0,offset:9223372036854775808", "the offset 9223372036854775808 is above Kafka's largest, 9223"),
            ("partition:2147483648,offset:0", "the partition 2147483648 is above Kafka's largest, 2147483647"),
        ],
    )
    def test_numbers_that_kafka_does_not_have(self, text: str, message: str) -> None:
        (problem,) = errors(table(options={**SPECIFIC, "scan.startup.specific-offsets": text}))

        assert message in problem.message

    def test_a_trailing_semicolon_and_a_repeated_partition_pass(self) -> None:
        assert dict(offset_pairs("partition:0,offset:1;partition:0,offset:2;")) == {0: 2}

    def test_two_offsets_of_one_partition_are_reported_with_the_effective_one(self) -> None:
        text = "partition:0,offset:1;partition:1,offset:5;partition:0,offset:2"
        (problem,) = problems(table(options={**SPECIFIC, "scan.startup.specific-offsets": text}), "read")

        assert problem.severity == "warning"
        assert problem.message == "'scan.startup.specific-offsets' sets the offsets 1 and 2 for partition 0; 2 is used"

    @pytest.mark.parametrize("value", ["2024-01-01", "1.5", ""])
    def test_an_unreadable_time_is_reported_once(self, value: str) -> None:
        settings: dict[str, Scalar] = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": value}

        assert codes(table(options=settings)) == ["option-value"]

    def test_options_of_another_mode_have_no_effect(self) -> None:
        settings: dict[str, Scalar] = {"scan.startup.timestamp-millis": 1, "scan.startup.specific-offsets": "garbage"}

        assert codes(table(options=settings)) == []
        assert warnings(table(options=settings)) == ["startup-unused", "startup-unused"]

    def test_the_reset_policy_is_one_of_kafkas(self) -> None:
        (problem,) = errors(table(options={"properties.auto.offset.reset": "erliest"}))

        assert problem.code == "client-setting-value"
        assert "(did you mean 'earliest'?)" in problem.message

    def test_a_sink_does_not_look_at_the_start(self) -> None:
        assert codes(table(options={"scan.startup.mode": "timestamp"}), "write") == []


class TestBounded:
    def test_a_table_is_unbounded_by_default(self) -> None:
        assert resolve(table(), "read").stop == Stop()

    @pytest.mark.parametrize(
        ("settings", "stop"),
        [
            ({"scan.bounded.mode": "LATEST-offset"}, Stop("latest")),
            ({"scan.bounded.mode": "group-offsets"}, Stop("group-offsets")),
            (
                {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": 1655395200000},
                Stop("timestamp", timestamp=1655395200000),
            ),
            (
                {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:2"},
                Stop("specific-offsets", offsets=(("orders", 0, 2),)),
            ),
        ],
    )
    def test_every_mode(self, settings: dict[str, Scalar], stop: Stop) -> None:
        assert resolve(table(options=settings), "read").stop == stop

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"scan.bounded.mode": "earliest-offset"}, "'scan.bounded.mode' has the value 'earliest-offset'"),
            ({"scan.bounded.mode": "timestamp"}, "'scan.bounded.mode' is 'timestamp', but no time is set"),
            ({"scan.bounded.mode": "specific-offsets"}, "'specific-offsets', but no offsets are set"),
            (
                {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "0:2"},
                "'scan.bounded.specific-offsets' has the value '0:2'",
            ),
            (
                {
                    "topic": "a;b",
                    "scan.bounded.mode": "specific-offsets",
                    "scan.bounded.specific-offsets": "partition:0,offset:2",
                },
                "requires a single topic",
            ),
        ],
    )
    def test_what_a_mode_needs(self, settings: dict[str, Scalar], message: str) -> None:
        (problem,) = errors(table(options=settings))

        assert message in problem.message

    def test_an_unused_value_causes_a_warning(self) -> None:
        definition = table(options={"scan.bounded.timestamp-millis": 1655395200000})
        results = [p.message for p in problems(definition, "read")]

        assert results == ["'scan.bounded.timestamp-millis' has no effect, because 'scan.bounded.mode' is 'unbounded'"]

    @pytest.mark.parametrize(
        ("start", "end", "message"),
        [
            (
                {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 1655395200009},
                {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": 1655395200000},
                "'scan.startup.timestamp-millis' is 1655395200009, and "
                "'scan.bounded.timestamp-millis' is 1655395200000",
            ),
            (
                {**SPECIFIC, "scan.startup.specific-offsets": "partition:0,offset:4;partition:1,offset:9"},
                {
                    "scan.bounded.mode": "specific-offsets",
                    "scan.bounded.specific-offsets": "partition:0,offset:4;partition:1,offset:8",
                },
                "'scan.startup.specific-offsets' is 9 for partition 1, and 'scan.bounded.specific-offsets' is 8",
            ),
        ],
    )
    def test_an_end_before_the_start_causes_a_warning(
        self, start: dict[str, Scalar], end: dict[str, Scalar], message: str
    ) -> None:
        (problem,) = problems(table(options={**start, **end}), "read")

        assert problem.severity == "warning"
        assert problem.message == f"{message}: the read ends before it starts, and returns nothing"

    def test_a_class_sets_it_in_one_argument(self) -> None:
        class Orders(KafkaTable, topic="orders", value="raw", bounded=datetime(2022, 6, 16, 16, tzinfo=UTC)):
            value: Col[str]

        assert resolve(Orders.definition(), "read").stop == Stop("timestamp", timestamp=1655395200000)


class TestLaunch:
    """A start that is passed to a read replaces the declared one."""

    @pytest.mark.parametrize(
        ("value", "start"),
        [
            ("earliest", Start("earliest")),
            ("latest-offset", Start("latest")),
            ("group-offsets", Start("group-offsets")),
            (datetime(2022, 6, 16, 16, tzinfo=UTC), Start("timestamp", timestamp=1655395200000)),
            ({1: 7, 0: 5}, Start("specific-offsets", offsets=(("orders", 0, 5), ("orders", 1, 7)))),
        ],
    )
    @pytest.mark.parametrize(
        "declared",
        [
            {},
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 1655395200009},
            {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:9"},
        ],
    )
    def test_every_value_of_startup(self, declared: dict[str, Scalar], value: Any, start: Start) -> None:
        assert launch_start(table(options=declared), value) == (start, ())

    def test_the_reset_policy_stays(self) -> None:
        definition = table(options={"properties.auto.offset.reset": "latest"})

        assert launch_start(definition, {0: 5})[0].reset == "latest"

    @pytest.mark.parametrize(
        ("value", "message", "fix"),
        [
            ("earlist", "start_at= is 'earlist' (did you mean 'earliest'?)", "write one of 'group-offsets', "),
            (5, "start_at= is 5, where a read cannot start", "write one of 'group-offsets', "),
            (
                datetime(2022, 6, 16, 16),
                "start_at= is the time 2022-06-16 16:00:00, which does not have a time zone",
                "add a time zone",
            ),
            (datetime(1969, 6, 16, tzinfo=UTC), "start_at= is -17193600000 ms after 1970, which is not a", "set a"),
            ({0: -1}, "start_at= is {0: -1}, but partitions and offsets are", "write start_at={0: 42, 1: 300}"),
        ],
    )
    def test_an_invalid_start_is_refused_as_in_a_class(self, value: Any, message: str, fix: str) -> None:
        with pytest.raises(ResolveError) as raised:
            launch_start(table(), value)

        (problem,) = raised.value.problems
        assert problem.message.startswith(message)
        assert problem.fix.startswith(fix)

    def test_offsets_need_a_single_topic(self) -> None:
        with pytest.raises(ResolveError) as raised:
            launch_start(table(options={"topic": "a;b"}), {0: 5})

        (problem,) = raised.value.problems
        assert problem.message.startswith(
            "start_at= 'specific-offsets' sets offsets by partition, which requires a single"
        )

    def test_an_early_time_causes_a_warning(self) -> None:
        _, (odd,) = launch_start(table(), datetime(1970, 1, 20, tzinfo=UTC))

        assert odd.message == "start_at= is 1641600000 ms after 1970, which is before March 1973"


class TestDiscovery:
    def test_it_is_the_option_else_the_client_property_else_five_minutes(self) -> None:
        option, setting = "scan.topic-partition-discovery.interval", "properties.partition.discovery.interval.ms"

        assert discovery_of(table()) == timedelta(minutes=5)
        assert discovery_of(table(options={option: "10 s"})) == timedelta(seconds=10)
        assert [discovery_of(table(options={option: off})) for off in ("0", "-1", "-1 ms")] == [None, None, None]
        assert discovery_of(table(options={setting: "2000"})) == timedelta(seconds=2)
        assert discovery_of(table(options={setting: "2000", option: "10 s"})) == timedelta(seconds=10)
        assert discovery_of(table(options={setting: "2000", option: "5 min"})) == timedelta(minutes=5)

    @pytest.mark.parametrize("off", ["0", "-1"])
    def test_zero_or_less_is_never(self, off: str) -> None:
        assert discovery_of(table(options={"properties.partition.discovery.interval.ms": off})) is None

    def test_a_bounded_read_does_not_discover_partitions(self) -> None:
        assert discovery_of(table(options={"scan.bounded.mode": "latest-offset"})) is None

    def test_a_conflicting_option_and_property_cause_a_warning(self) -> None:
        option, setting = "scan.topic-partition-discovery.interval", "properties.partition.discovery.interval.ms"

        assert warnings(table(options={setting: "2000", option: "10 s"})) == ["discovery"]
        assert warnings(table(options={setting: "2000", option: "2 s"})) == []
        assert warnings(table(options={setting: "-1", option: "0"})) == []


class TestGroup:
    @pytest.mark.parametrize("group", ["", " "])
    def test_an_empty_group_is_refused(self, group: str) -> None:
        (problem,) = errors(table(options={"properties.group.id": group}))

        assert problem.code == "group-id"
        assert problem.fix == "name the group, or remove it to use the group KafkaSource-orders"
