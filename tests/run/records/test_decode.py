"""Raw record batches to rows, without Spark and without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kdsl.declare.document import read_tables
from kdsl.errors import RecordError
from kdsl.plan import build
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.resolve.header_filter import parse_header_filter
from kdsl.run.records.decode import RecordDecoder, check_batches
from kdsl.run.records.drops import Reason, key_of_column
from kdsl.run.records.metadata import RAW
from kdsl.run.records.record_errors import DecodeError
from kdsl.types.arrow import arrow_schema
from tests.run.read_plans import part, read_plan

NUMBER = {"n": "BIGINT"}


def raw(records: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Records of topic orders, partition 3, offsets from 100; what a record does not say is as a producer leaves it."""
    usual = {"topic": "orders", "partition": 3, "timestamp": 0, "timestamp_type": 0, "leader_epoch": 0, "headers": []}
    rows = [{**usual, "offset": 100 + i, **record} for i, record in enumerate(records)]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(RAW.items())))


def decode(plan: ReadPlan, *records: Mapping[str, Any], zone: str = "UTC") -> list[dict[str, Any]]:
    """The rows of some records, with their schema looked at."""
    rows = RecordDecoder(plan, zone).decode(raw(records))
    assert rows.schema == arrow_schema(plan.columns)
    rows.validate(full=True)
    return list(rows.to_pylist())


def metadata(key: str, kind: str, *records: Mapping[str, Any], zone: str = "UTC") -> list[Any]:
    """A metadata column of some records."""
    plan = read_plan(metadata={"shown": key}, types={"shown": kind})
    return [values["shown"] for values in decode(plan, *records, zone=zone)]


class TestOptionsThatRead:
    """An error of a message that other options of its format read names them, in Python and as Flink's options."""

    @pytest.mark.parametrize(
        ("name", "options", "message", "python", "sql"),
        [
            (
                "json",
                {},
                b'{"at": "2024-05-01T12:30:00", "a": 1}',
                "Json(timestamp_format='ISO-8601')",
                "'json.timestamp-format.standard' = 'ISO-8601'",
            ),
            (
                "json",
                {"timestamp_format": "ISO-8601", "ignore_null_fields": True},
                b'{"at": "2024-05-01 12:30:00", "a": 1}',
                "Json(timestamp_format='SQL')",
                "'json.timestamp-format.standard' = 'SQL'",
            ),
            (
                "maxwell-json",
                {},
                b'{"data": {"at": "2024-05-01T12:30:00", "a": 1}, "type": "insert"}',
                "MaxwellJson(timestamp_format='ISO-8601')",
                "'maxwell-json.timestamp-format.standard' = 'ISO-8601'",
            ),
            (
                "debezium-json",
                {},
                b'{"payload": {"before": null, "after": {"a": 1}, "op": "c"}}',
                "DebeziumJson(schema_include=True)",
                "'debezium-json.schema-include' = 'true'",
            ),
            (
                "debezium-json",
                {"schema_include": True},
                b'{"before": null, "after": {"a": 1}, "op": "c"}',
                "DebeziumJson(schema_include=False)",
                "'debezium-json.schema-include' = 'false'",
            ),
            (
                "debezium-json",
                {},
                b'{"before": null, "after": {"at": 1714566600000, "a": 1}, "op": "c"}',
                "DebeziumJson(decimal_handling_mode='precise', time_precision_mode='adaptive')",
                "'debezium-json.decimal.handling.mode' = 'precise', 'debezium-json.time.precision.mode' = 'adaptive'",
            ),
            ("csv", {}, b"2024-05-01 12:30:00;1", "Csv(field_delimiter=';')", "'csv.field-delimiter' = ';'"),
            ("csv", {}, b"NULL,1", "Csv(null_literal='NULL')", "'csv.null-literal' = 'NULL'"),
            (
                "csv",
                {"field_delimiter": ";"},
                b"# at; a\n2024-05-01 12:30:00;1",
                "Csv(allow_comments=True)",
                "'csv.allow-comments' = 'true'",
            ),
            ("csv", {}, b"'2024-05-01 12:30:00',1", 'Csv(quote_character="\'")', "'csv.quote-character' = ''''"),
        ],
    )
    def test_they_are_named(self, name: str, options: dict[str, Any], message: bytes, python: str, sql: str) -> None:
        value = part(name, {"at": "TIMESTAMP(3)", "a": "INT"}, **options)
        with pytest.raises(RecordError) as error:
            RecordDecoder(read_plan(value=value)).decode(raw([{"value": message}]))

        assert error.value.fix == f"write {python} to read it, in SQL and YAML {sql}"
        assert str(error.value).endswith(f"; {error.value.fix}")

    def test_what_a_number_counts_is_not_guessed_where_anybody_may_have_written_it(self) -> None:
        plan = read_plan(value=part("json", {"at": "TIMESTAMP(3)"}))
        with pytest.raises(RecordError) as error:
            RecordDecoder(plan).decode(raw([{"value": b'{"at": 1714566600000}'}]))

        assert error.value.fix == ""

    def test_of_a_key_they_begin_with_key(self) -> None:
        plan = read_plan(key=part("json", {"at": "TIMESTAMP_LTZ(3)"}))
        with pytest.raises(RecordError) as error:
            decode(plan, {"key": b'{"at": "2024-05-01T12:30:00Z"}'})

        assert error.value.fix.endswith(" 'key.json.timestamp-format.standard' = 'ISO-8601'")

    @pytest.mark.parametrize("message", [b'{"at": "2024-05-01T12:30:00", "a": "x"}', b"{oops", b"\xff"])
    def test_nothing_is_named_where_no_other_options_read_the_message(self, message: bytes) -> None:
        with pytest.raises(RecordError) as error:
            decode(read_plan(value=part("json", {"at": "TIMESTAMP(3)", "a": "INT"})), {"value": message})

        assert error.value.fix == ""


class TestHeaderFilter:
    def test_records_that_do_not_match_are_left_out_before_they_are_decoded(self) -> None:
        plan = read_plan(value=part("json", NUMBER), headers=parse_header_filter("kind:good"))
        decoder = RecordDecoder(plan)

        rows = decoder.decode(
            raw(
                [
                    {"value": b'{"n": 1}', "headers": [{"key": "kind", "value": b"good"}]},
                    {"value": b"{oops", "headers": [{"key": "kind", "value": b"bad"}]},
                    {"value": b"{oops"},
                    {"value": b'{"n": 4}', "headers": [{"key": "x", "value": None}, {"key": "kind", "value": b"good"}]},
                ]
            )
        )

        assert rows.to_pylist() == [{"n": 1}, {"n": 4}]
        assert decoder.filtered == 2
        assert decoder.needs == {"value", "headers"}

    def test_an_error_names_the_record_if_others_before_it_are_dropped(self) -> None:
        plan = read_plan(value=part("json", NUMBER), headers=parse_header_filter("!kind:bad"))

        with pytest.raises(RecordError, match="partition 3, offset 101"):
            decode(plan, {"value": b"", "headers": [{"key": "kind", "value": b"bad"}]}, {"value": b"{oops"})

    def test_a_batch_without_matches_returns_no_row(self) -> None:
        plan = read_plan(
            key=part("json", {"k": "BIGINT"}),
            value=part("json", NUMBER),
            metadata={"h": "headers"},
            headers=parse_header_filter("a:1"),
        )

        assert decode(plan, {"value": b"{oops"}, {"value": None}) == []


class TestParts:
    def test_key_value_and_metadata_are_in_the_order_of_the_table(self) -> None:
        plan = read_plan(
            key=part("json", {"k_id": "BIGINT"}, ["id"]),
            value=part("json", {"name": "STRING"}),
            metadata={"at": "offset"},
            columns=["name", "at", "k_id"],
        )

        rows = decode(plan, {"key": b'{"id": 1}', "value": b'{"name": "one"}'})

        assert rows == [{"name": "one", "at": 100, "k_id": 1}]
        assert list(rows[0]) == ["name", "at", "k_id"]

    def test_of_a_column_in_key_and_value_the_values_counts(self) -> None:
        plan = read_plan(key=part("json", NUMBER), value=part("json", NUMBER))

        assert decode(plan, {"key": b'{"n": 1}', "value": b'{"n": 2}'}) == [{"n": 2}]

    def test_a_null_key_returns_null_key_columns(self) -> None:
        plan = read_plan(key=part("json", {"k": "BIGINT"}), value=part("json", NUMBER))

        rows = decode(
            plan,
            {"value": b'{"n": 1}'},
            {"key": b'{"k": 7}', "value": b'{"n": 2}'},
            {"key": None, "value": b'{"n": 3}'},
        )

        assert rows == [{"k": None, "n": 1}, {"k": 7, "n": 2}, {"k": None, "n": 3}]

    def test_a_message_whose_value_has_no_row_is_dropped_and_counted(self) -> None:
        plan = read_plan(key=part("json", {"k": "BIGINT"}), value=part("json", NUMBER), metadata={"at": "offset"})
        decoder = RecordDecoder(plan)

        rows = decoder.decode(
            raw(
                [
                    {"key": b'{"k": 1}', "value": b'{"n": 1}'},
                    {"key": b'{"k": 2}', "value": None},
                    {"key": b'{"k": 3}', "value": b'{"n": 3}'},
                ]
            )
        )

        assert rows.to_pylist() == [{"at": 100, "k": 1, "n": 1}, {"at": 102, "k": 3, "n": 3}]
        assert decoder.dropped == {"tombstone": 1}

    def test_a_batch_of_tombstones_alone_is_empty(self) -> None:
        plan = read_plan(key=part("json", {"k": "BIGINT"}), value=part("json", NUMBER))
        decoder = RecordDecoder(plan)

        assert decoder.decode(raw([{"key": b'{"k": 1}'}, {"key": None}])).num_rows == 0
        assert decoder.dropped == {"tombstone": 2}

    def test_several_rows_of_a_value_repeat_key_and_metadata(self) -> None:
        plan = read_plan(
            key=part("json", {"k": "BIGINT"}),
            value=part("raw", {"text": "STRING"}, line_delimiter="\n"),
            metadata={"at": "offset"},
        )

        rows = decode(plan, {"key": b'{"k": 1}', "value": b"a\nb"}, {"key": b'{"k": 2}', "value": b"c"})

        assert rows == [
            {"at": 100, "k": 1, "text": "a"},
            {"at": 100, "k": 1, "text": "b"},
            {"at": 101, "k": 2, "text": "c"},
        ]

    def test_several_rows_of_a_key_come_once_with_each_row_of_the_value(self) -> None:
        plan = read_plan(
            key=part("raw", {"k": "STRING"}, line_delimiter=","),
            value=part("raw", {"text": "STRING"}, line_delimiter="\n"),
            metadata={"at": "offset"},
        )

        rows = decode(
            plan, {"key": b"x,y", "value": b"a\nb"}, {"key": b"", "value": b"c"}, {"key": b"z", "value": b"d"}
        )

        assert [(values["at"], values["k"], values["text"]) for values in rows] == [
            (100, "x", "a"),
            (100, "y", "a"),
            (100, "x", "b"),
            (100, "y", "b"),
            (101, None, "c"),
            (102, "z", "d"),
        ]

    def test_metadata_alone_returns_a_row_for_each_record(self) -> None:
        plan = read_plan(metadata={"at": "offset", "topic": "topic"})

        rows = decode(plan, {"value": b"not json"}, {"value": None})

        assert rows == [{"at": 100, "topic": "orders"}, {"at": 101, "topic": "orders"}]
        assert RecordDecoder(plan).needs == {"offset", "topic"}

    def test_only_what_the_plan_reads_is_needed(self) -> None:
        plan = read_plan(value=part("json", NUMBER), metadata={"h": "headers", "k": "__raw_key__"})

        assert RecordDecoder(plan).needs == {"value", "headers", "key"}

    def test_an_empty_batch_has_no_rows(self) -> None:
        plan = read_plan(
            key=part("json", {"k": "BIGINT"}),
            value=part("json", NUMBER),
            metadata={"h": "headers", "l": "header-list", "t": "timestamp", "y": "timestamp-type"},
        )

        assert decode(plan) == []


class TestBadRecords:
    def test_the_first_bad_value_is_named_and_the_others_are_counted(self) -> None:
        plan = read_plan(value=part("json", NUMBER))

        with pytest.raises(RecordError) as raised:
            decode(plan, {"value": b'{"n": 1}'}, {"value": b"{oops"}, {"value": b"[1"}, {"value": b'{"n": 4}'})

        error = raised.value
        assert (error.topic, error.partition, error.offset, error.data, error.more) == ("orders", 3, 101, b"{oops", 1)
        assert "topic orders, partition 3, offset 101: the value cannot be decoded: " in str(error)
        assert "it has 5 bytes: '{oops'" in str(error)

    def test_a_bad_key_is_reported_as_the_key(self) -> None:
        plan = read_plan(key=part("json", {"k": "BIGINT"}), value=part("json", NUMBER))

        with pytest.raises(RecordError, match=r"offset 100: the key cannot be decoded: .* 'no'"):
            decode(plan, {"key": b"no", "value": b'{"n": 1}'})

    def test_null_in_a_column_declared_not_null_is_an_error_with_the_way_out(self) -> None:
        plan = read_plan(value=part("json", {"n": "BIGINT NOT NULL"}))

        with pytest.raises(RecordError) as raised:
            decode(plan, {"value": b'{"n": 1}'}, {"value": b'{"n": null}'}, {"value": b"{}"})

        assert (raised.value.offset, raised.value.more) == (101, 1)
        assert "column 'n' is NULL, but it is declared NOT NULL" in str(raised.value)
        assert str(raised.value).endswith("declare it nullable: n: … | None (in SQL without NOT NULL)")

    def test_a_missing_message_key_is_reported_as_the_reason(self) -> None:
        plan = read_plan(key=part("json", {"k": "BIGINT NOT NULL"}), value=part("json", NUMBER))

        with pytest.raises(RecordError, match="'k' is NULL, but it is declared NOT NULL, and the message has no key"):
            decode(plan, {"value": b'{"n": 1}'})

    @pytest.mark.parametrize(
        ("kind", "value", "path"),
        [
            ("ROW<b INT NOT NULL>", b'{"a": {"b": null}}', "a.b"),
            ("ARRAY<INT NOT NULL>", b'{"a": [1, null]}', "a.element"),
            ("MAP<STRING NOT NULL, INT NOT NULL>", b'{"a": {"x": null}}', "a.value"),
        ],
    )
    def test_null_inside_of_a_column_is_an_error_too(self, kind: str, value: bytes, path: str) -> None:
        plan = read_plan(value=part("json", {"a": kind}))

        with pytest.raises(RecordError, match=f"column '{path}' is NULL"):
            decode(plan, {"value": value})

    def test_a_format_that_ignores_errors_leaves_such_rows_out_and_counts_them(self) -> None:
        plan = read_plan(
            value=part("json", {"n": "BIGINT NOT NULL"}, ignore_parse_errors=True), metadata={"at": "offset"}
        )
        decoder = RecordDecoder(plan)

        rows = decoder.decode(
            raw([{"value": b'{"n": 1}'}, {"value": b'{"n": "x"}'}, {"value": b"{}"}, {"value": b"{"}])
        )

        assert rows.to_pylist() == [{"at": 100, "n": 1}]
        assert decoder.dropped == {"not-null": 2, "parse-error": 1}

    def test_a_batch_of_another_schema_is_reported(self) -> None:
        good = pa.schema([pa.field("n", pa.int64())])
        batches = [pa.RecordBatch.from_pydict({"n": [1]}), pa.RecordBatch.from_pydict({"n": ["1"]})]

        with pytest.raises(DecodeError, match="string"):
            list(check_batches(batches, good))


class TestMetadata:
    def test_every_key_has_its_own_type(self) -> None:
        names = {
            "topic": "topic",
            "partition": "partition",
            "offset": "offset",
            "epoch": "leader-epoch",
            "time": "timestamp",
            "kind": "timestamp-type",
            "headers": "headers",
            "list": "header-list",
            "key": "__raw_key__",
            "value": "__raw_value__",
        }
        record = {
            "timestamp": 1_583_673_131_123,
            "timestamp_type": 1,
            "leader_epoch": 4,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            "key": b"k",
            "value": b"v",
        }

        assert decode(read_plan(metadata=names), record) == [
            {
                "topic": "orders",
                "partition": 3,
                "offset": 100,
                "epoch": 4,
                "time": datetime(2020, 3, 8, 13, 12, 11, 123_000, UTC),
                "kind": "LogAppendTime",
                "headers": [("a", b"1"), ("b", None)],
                "list": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
                "key": b"k",
                "value": b"v",
            }
        ]

    def test_of_a_repeated_header_the_last_one_counts_and_the_list_has_all(self) -> None:
        plan = read_plan(metadata={"h": "headers", "l": "header-list"})
        pairs: list[list[tuple[str, bytes | None]]] = [
            [("a", b"1"), ("b", b"2"), ("a", b"3")],
            [],
            [("a", b"4"), ("a", None)],
            [("c", b"5")],
        ]

        rows = decode(plan, *({"headers": [{"key": k, "value": v} for k, v in one]} for one in pairs))

        assert [dict(values["h"]) for values in rows] == [{"b": b"2", "a": b"3"}, {}, {"a": None}, {"c": b"5"}]
        assert [[(e["key"], e["value"]) for e in values["l"]] for values in rows] == pairs

    def test_timestamp_types_have_kafkas_names(self) -> None:
        result = metadata("timestamp-type", "STRING", *({"timestamp_type": code} for code in (-1, 0, 1)))

        assert result == ["NoTimestampType", "CreateTime", "LogAppendTime"]

    @pytest.mark.parametrize(
        ("kind", "zone", "expected"),
        [
            ("TIMESTAMP_LTZ(3)", "UTC", datetime(2020, 3, 8, 23, 12, 11, 123_000, UTC)),
            ("TIMESTAMP_LTZ(0)", "UTC", datetime(2020, 3, 8, 23, 12, 11, 0, UTC)),
            ("TIMESTAMP(3)", "UTC", datetime(2020, 3, 8, 23, 12, 11, 123_000)),
            ("TIMESTAMP(1)", "UTC", datetime(2020, 3, 8, 23, 12, 11, 100_000)),
            ("TIMESTAMP(3)", "Europe/Berlin", datetime(2020, 3, 9, 0, 12, 11, 123_000)),
            ("DATE", "UTC", date(2020, 3, 8)),
            ("DATE", "Europe/Berlin", date(2020, 3, 9)),
            ("STRING", "UTC", "2020-03-08 23:12:11.123"),
            ("STRING", "Europe/Berlin", "2020-03-09 00:12:11.123"),
        ],
    )
    def test_a_timestamp_shows_in_the_zone_of_the_read(self, kind: str, zone: str, expected: object) -> None:
        assert metadata("timestamp", kind, {"timestamp": 1_583_709_131_123}, zone=zone) == [expected]

    def test_a_timestamp_before_the_epoch_is_cut_off_downwards(self) -> None:
        assert metadata("timestamp", "DATE", {"timestamp": -1500}) == [date(1969, 12, 31)]
        assert metadata("timestamp", "STRING", {"timestamp": -1500}) == ["1969-12-31 23:59:58.500"]

    def test_a_timestamp_that_is_absent_or_out_of_reach_is_null(self) -> None:
        result = metadata("timestamp", "TIMESTAMP_LTZ(3)", {"timestamp": -1}, {"timestamp": 2**62}, {"timestamp": 1000})

        assert result == [None, None, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]

    def test_a_required_timestamp_is_the_nearest_one(self) -> None:
        plan = read_plan(metadata={"t": "timestamp"}, types={"t": "TIMESTAMP_LTZ(3) NOT NULL"})

        result = RecordDecoder(plan).decode(raw([{"timestamp": -1}, {"timestamp": 2**62}])).column(0).cast(pa.int64())

        assert result.to_pylist() == [-1000, (2**63 - 1) // 1000 * 1000]

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [("INT", 100), ("SMALLINT", 100), ("STRING", "100"), ("DECIMAL(5, 2)", Decimal("100.00")), ("DOUBLE", 100.0)],
    )
    def test_an_offset_shows_as_other_types(self, kind: str, expected: object) -> None:
        assert metadata("offset", kind, {}) == [expected]

    @pytest.mark.parametrize(
        ("kind", "least", "most"),
        [("INT", -(2**31), 2**31 - 1), ("TINYINT", -128, 127), ("DECIMAL(4, 1)", -999, 999)],
    )
    def test_a_number_that_overflows_its_column_is_an_error(self, kind: str, least: int, most: int) -> None:
        for first, second in ((most + 1, least - 1), (least - 1, least - 2)):
            with pytest.raises(RecordError) as raised:
                metadata("offset", kind, {"offset": 5}, {"offset": first}, {"offset": second})

            assert (raised.value.offset, raised.value.more) == (first, 1)
            reason = f"column 'shown': {first} does not fit {kind}, whose values are {least} to {most}"
            assert reason in str(raised.value)

    def test_raw_bytes_and_headers_are_shown_as_strings(self) -> None:
        assert metadata("__raw_value__", "STRING", {"value": "é".encode()}, {"value": None}) == ["é", None]
        assert metadata("__raw_value__", "STRING", {"value": b"a\xffb"}) == ["a\ufffdb"]
        headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
        assert metadata("headers", "MAP<STRING, STRING>", {"headers": headers}, {}) == [[("a", "1"), ("b", None)], []]
        assert metadata("header-list", "ARRAY<ROW<name STRING, text STRING>>", {"headers": headers}) == [
            [{"name": "a", "text": "1"}, {"name": "b", "text": None}]
        ]

    def test_a_leader_epoch_may_be_unknown(self) -> None:
        assert metadata("leader-epoch", "INT", {"leader_epoch": None}, {"leader_epoch": 2}) == [None, 2]
        with pytest.raises(RecordError, match="'shown' is NULL, but it is declared NOT NULL"):
            metadata("leader-epoch", "INT NOT NULL", {"leader_epoch": None})


CHOSEN = """
name: orders
columns:
  - {name: k, type: STRING}
  - {name: n, type: BIGINT}
  - {name: "offset", type: BIGINT, metadata: true, virtual: true}
options:
  connector: kafka
  topic: orders
  scan.startup.mode: earliest-offset
  key.format: raw
  key.fields: k
  value.fields-include: EXCEPT_KEY
  value.format: FORMAT
"""


@pytest.mark.parametrize(
    ("name", "messages", "offsets"),
    [
        ("json", [b'{"n":1}', None, b"", b'[{"n":1},{"n":2}]', b"[]"], [100, 103, 103]),
        ("csv", [b"1", None, b"2"], [100, 102]),
        ("raw", [b"\0" * 8, None], [100, 101]),
        ("avro", [b"\x02\x02", None], [100]),
    ],
)
def test_a_choice_of_columns_changes_no_rows(name: str, messages: list[bytes | None], offsets: list[int]) -> None:
    (table,) = read_tables(CHOSEN.replace("FORMAT", name))
    records = [{"key": b"k", "value": value} for value in messages]
    for columns in (None, ["offset"], ["k", "offset"], ["n", "offset"]):
        rows = decode(build.read_plan(resolve(table, "read"), columns), *records)

        assert [row["offset"] for row in rows] == offsets, columns


def test_infinite_values_that_are_null_are_counted() -> None:
    decoder = RecordDecoder(read_plan(value=part("json", {"at": "TIMESTAMP(6)"}, time_precision_mode="adaptive")))
    rows = decoder.decode(raw([{"value": b'{"at": 9223372036825200000}'}, {"value": b'{"at": 1}'}]))

    assert rows.column("at").null_count == 1
    assert decoder.dropped == {Reason.INFINITE: 1}


def test_integers_that_lose_digits_in_inferred_columns_are_counted() -> None:
    decoder = RecordDecoder(read_plan(value=part("json", {"v": "DOUBLE"}, inferred_columns=True)))
    rows = decoder.decode(raw([{"value": b'{"v": 9007199254740993}'}, {"value": b'{"v": 0.5}'}]))

    assert rows.column("v").to_pylist() == [9007199254740992.0, 0.5]
    assert decoder.dropped == {Reason.LOSSY: 1, key_of_column(Reason.LOSSY, "v"): 1}


def test_an_infinite_value_of_a_column_that_is_not_null_is_an_error() -> None:
    value = part("json", {"at": "TIMESTAMP(6) NOT NULL"}, time_precision_mode="adaptive")
    with pytest.raises(RecordError, match="field 'at': 9223372036825200000 is not a TIMESTAMP"):
        RecordDecoder(read_plan(value=value)).decode(raw([{"value": b'{"at": 9223372036825200000}'}]))
