"""Metadata columns (RULES MD), the primary key (RULES PK), watermarks."""

from __future__ import annotations

import pytest

from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.declare.document import read_tables
from kdsl.declare.metadata import METADATA
from kdsl.resolve import problems, resolve
from tests.resolve.tables import codes, errors, table, warnings


class TestKeys:
    @pytest.mark.parametrize("key", METADATA)
    def test_every_key_can_be_read_as_its_own_type(self, key: str) -> None:
        assert codes(table("id INT", f"m {METADATA[key].type} METADATA FROM {key}")) == []

    def test_an_unknown_key_is_reported_with_a_suggestion(self) -> None:
        (problem,) = errors(table("id INT", "m BIGINT METADATA FROM ofset"))

        assert problem.code == "metadata-key"
        assert problem.message == "there is no metadata 'ofset' (did you mean 'offset'?)"

    @pytest.mark.parametrize("key", [k.name for k in METADATA.values() if not k.writable] + ["topic"])
    def test_what_kafka_sets_cannot_be_written(self, key: str) -> None:
        kind = METADATA[key].type

        assert codes(table("id INT", f"m {kind} METADATA FROM {key}"), "write") == ["metadata-read-only"]
        assert codes(table("id INT", f"m {kind} METADATA FROM {key} VIRTUAL"), "write") == []

    def test_a_virtual_column_of_an_unknown_key_does_not_stop_a_write(self) -> None:
        assert codes(table("id INT", "m INT METADATA FROM nope VIRTUAL"), "write") == []

    def test_key_and_value_are_not_metadata(self) -> None:
        assert codes(table("id INT", "key BYTES METADATA")) == ["metadata-key"]


class TestTypes:
    @pytest.mark.parametrize(
        "text",
        [
            "m TIMESTAMP(3) METADATA FROM timestamp",
            "m STRING METADATA FROM timestamp",
            "m DATE METADATA FROM timestamp",
            "m STRING METADATA FROM partition",
            "m TINYINT METADATA FROM partition",
            "m INT METADATA FROM offset",
            "m MAP<STRING, STRING> METADATA FROM headers",
            "m INT NOT NULL METADATA FROM leader-epoch",
            "m STRING METADATA FROM __raw_value__",
        ],
    )
    def test_casts_that_work(self, text: str) -> None:
        assert codes(table("id INT", text)) == []

    @pytest.mark.parametrize(
        "text",
        [
            "m BIGINT METADATA FROM timestamp",
            "m INT METADATA FROM topic",
            "m DATE METADATA FROM offset",
            "m STRING METADATA FROM headers",
            "m ARRAY<STRING> METADATA FROM header-list",
        ],
    )
    def test_casts_that_do_not(self, text: str) -> None:
        assert codes(table("id INT", text)) == ["metadata-type"]


class TestWrittenOnce:
    HEADERS = "h MAP<STRING, BYTES> METADATA FROM headers"
    LIST = "l ARRAY<ROW<`key` STRING, `value` BYTES>> METADATA FROM header-list"

    def test_headers_are_set_by_one_column(self) -> None:
        assert codes(table("id INT", self.HEADERS, self.LIST), "write") == ["metadata-twice"]

    def test_a_virtual_one_does_not_set_them(self) -> None:
        assert codes(table("id INT", self.HEADERS, self.LIST + " VIRTUAL"), "write") == []
        assert codes(table("id INT", self.HEADERS, self.LIST)) == []


class TestRawKeyAndValue:
    def test_a_raw_key_is_the_only_column_of_its_side(self) -> None:
        options: dict[str, Scalar] = {"key.format": "json", "key.fields": "id"}

        assert codes(table("id INT", "k BYTES METADATA FROM __raw_key__", options=options), "write") == ["raw-key"]
        assert codes(table("id INT", "k BYTES METADATA FROM __raw_key__"), "write") == []

    def test_a_raw_value_without_other_columns_needs_no_format_and_takes_any(self) -> None:
        raw = "v BYTES METADATA FROM __raw_value__"
        for chosen in ("raw", "json"):
            definition = table(raw, options={"format": chosen})
            assert (codes(definition), codes(definition, "write")) == ([], [])
        assert codes(table(raw, without=("format",)), "write") == []
        resolved = resolve(table(raw, options={"format": "raw"}), "write")
        assert (resolved.value, [c.name for c in resolved.metadata]) == (None, ["v"])

    def test_a_raw_value_is_the_only_column_of_its_side(self) -> None:
        column = "v BYTES METADATA FROM __raw_value__"

        assert codes(table("id INT", column), "write") == ["raw-value"]
        assert codes(table(column), "write") == []
        assert codes(table("id INT", column)) == []


class TestPrimaryKey:
    def test_an_insert_only_format_has_none(self) -> None:
        (problem,) = errors(table(primary_key=("id",)))

        assert problem.code == "primary-key"
        assert "the format 'json' only inserts" in problem.message
        assert problem.fix == (
            "use the connector 'upsert-kafka' with a 'key.format' and a 'value.format', which keeps the last row of "
            "each key; or remove the primary key: the rows stay the same"
        )

    def test_it_names_columns(self) -> None:
        assert codes(table(primary_key=("nope",))) == ["primary-key-column", "primary-key"]

    def test_its_location_is_that_of_the_column(self) -> None:
        (tables,) = read_tables(
            "name: a\nprimary_key: [x]\ncolumns:\n  - {name: x, type: INT}\n"
            "options: {connector: kafka, topic: a, format: json}\n"
        )

        assert [p.where.line for p in problems(tables, "read")] == [4]


class TestWatermark:
    TIME = "ts TIMESTAMP_LTZ(3) METADATA FROM timestamp"

    @pytest.mark.parametrize("text", [TIME, "ts TIMESTAMP(3)", "ts TIMESTAMP(3) AS now()"])
    def test_it_needs_a_time_column(self, text: str) -> None:
        assert codes(table("id INT", text, watermark=WatermarkConfig(column="ts", delay="5 seconds"))) == []

    def test_not_on_another_type(self) -> None:
        assert codes(table(watermark=WatermarkConfig(column="id", delay="5 s"))) == ["watermark-type"]

    def test_a_watermark_needs_an_existing_column(self) -> None:
        (problem,) = errors(table("id INT", self.TIME, watermark=WatermarkConfig(column="t", delay="5 s")))

        assert problem.code == "watermark-column"

    @pytest.mark.parametrize("delay", ["5 secnds", "soon", "PT-5S", ""])
    def test_the_delay_is_a_duration(self, delay: str) -> None:
        assert codes(table("id INT", self.TIME, watermark=WatermarkConfig(column="ts", delay=delay))) == [
            "watermark-delay"
        ]

    @pytest.mark.parametrize(("drift", "values"), [("5 s", []), ("6 s", ["alignment"])])
    def test_a_drift_of_partitions_above_the_allowed_lateness_causes_a_warning(
        self, drift: str, values: list[str]
    ) -> None:
        settings: dict[str, Scalar] = {
            "scan.watermark.alignment.group": "g",
            "scan.watermark.alignment.max-drift": drift,
        }
        watermark = WatermarkConfig(column="ts", delay="5 s")

        assert warnings(table("id INT", self.TIME, options=settings, watermark=watermark)) == values

    def test_a_limit_of_what_advances_the_watermark_needs_a_watermark(self) -> None:
        settings: dict[str, Scalar] = {"scan.watermark.max-ahead": "1 h"}
        watermark = WatermarkConfig(column="ts", delay="5 s")

        assert warnings(table("id INT", self.TIME, options=settings)) == ["watermark-ahead"]
        assert warnings(table("id INT", self.TIME, options=settings, watermark=watermark)) == []


class TestColumns:
    def test_a_name_is_declared_once(self) -> None:
        assert codes(table("id INT", "id STRING")) == ["column-repeated"]

    def test_names_that_differ_only_in_case_cause_a_warning(self) -> None:
        assert warnings(table("id INT", "ID STRING")) == ["column-case"]

    def test_members_of_a_row_that_differ_in_case(self) -> None:
        assert warnings(table("id ARRAY<ROW<a INT, A INT>>")) == ["column-case"]

    def test_a_name_that_is_empty(self) -> None:
        assert codes(table("id INT", " INT")) == ["column-name"]

    def test_an_expression_that_is_empty(self) -> None:
        config = TableConfig(
            name="a",
            columns=[ColumnConfig(name="x", type="INT"), ColumnConfig(name="y", type="INT", computed=" ")],
            options={"connector": "kafka", "topic": "a", "format": "json"},
        )

        assert codes(config.definition()) == ["computed"]

    def test_a_sink_has_something_to_write(self) -> None:
        assert codes(table("o BIGINT METADATA FROM offset VIRTUAL"), "write") == ["nothing-to-write"]

    def test_digits_beyond_microseconds_cause_a_warning(self) -> None:
        assert warnings(table("a ROW<x TIMESTAMP(9)>")) == ["precision"]


class TestFormats:
    def test_a_value_needs_a_format(self) -> None:
        assert codes(table(without=("format",))) == ["value-format"]

    def test_a_sink_of_keys_alone_needs_one_too(self) -> None:
        options: dict[str, Scalar] = {"key.format": "json", "key.fields": "id", "value.fields-include": "EXCEPT_KEY"}

        assert codes(table("id INT", options=options, without=("format",)), "write") == ["value-format"]
        assert codes(table("id INT", options=options, without=("format",))) == []

    def test_metadata_alone_needs_none_to_be_read(self) -> None:
        assert codes(table("o BIGINT METADATA FROM offset VIRTUAL", without=("format",))) == []

    def test_problems_of_a_format_name_the_column(self) -> None:
        (problem,) = errors(table("a MAP<INT, STRING>"))

        assert problem.where.column == "a"

    def test_a_wrong_format_option_is_reported_in_the_users_spelling(self) -> None:
        (problem,) = errors(table(options={"json.ignore-parse-errors": "maybe"}))

        assert problem.message.startswith("'json.ignore-parse-errors' has the value 'maybe'")


def test_all_problems_are_reported_at_once() -> None:
    definition = table(
        "id INT",
        "m INT METADATA FROM nope",
        options={"topic-pattern": "(", "key.format": "json", "scan.startup.mode": "timestamp", "topik": "x"},
        watermark=WatermarkConfig(column="id", delay="x"),
    )

    assert codes(definition) == [
        "option-unknown",
        "topic-and-pattern",
        "topic-pattern",
        "startup-timestamp",
        "key-fields",
        "metadata-key",
        "watermark-type",
        "watermark-delay",
    ]
