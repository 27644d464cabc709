"""Changelogs through the record decoder and encoder: what rows say, metadata of the format, rows of one message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kdsl.declare.document import read_tables
from kdsl.errors import RecordError
from kdsl.formats import ROW_KIND
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason
from kdsl.run.records.encode import RecordEncoder
from kdsl.types.arrow import arrow_schema
from tests.run.records.test_decode import raw

CANAL = """
name: products
columns:
  - {name: id, type: BIGINT NOT NULL}
  - {name: name, type: STRING}
  - {name: weight, type: "DECIMAL(10, 3)"}
  - {name: origin, type: VARCHAR(20), metadata: value.database, virtual: true}
  - {name: types, type: "MAP<STRING, STRING>", metadata: value.sql-type, virtual: true}
  - {name: day, type: DATE, metadata: value.event-timestamp, virtual: true}
  - {name: at, type: TIMESTAMP(3), metadata: value.ingestion-timestamp, virtual: true}
  - {name: offset, type: STRING, metadata: true, virtual: true}
primary_key: [id]
options:
  connector: kafka
  topic: products
  key.format: raw
  key.fields: k
  value.format: canal-json
"""


def document(**options: str) -> str:
    keyed = CANAL.replace("columns:\n", "columns:\n  - {name: k, type: STRING}\n").replace(
        "  value.format", "  value.fields-include: EXCEPT_KEY\n  value.format"
    )
    return keyed + "".join(f"  {key}: {value}\n" for key, value in options.items())


def reading(*columns: str, **options: str) -> ReadPlan:
    (table,) = read_tables(document(**options))
    plan = read_plan(resolve(table, "read"), columns or None)
    return read_plan_text(plan_text(plan), ReadPlan)  # as it comes to the executors


def writing() -> WritePlan:
    (table,) = read_tables(document())
    return read_plan_text(plan_text(write_plan(resolve(table, "write"))), WritePlan)


def message(kind: str, *data: str, old: str = "null", more: str = "") -> dict[str, Any]:
    listed = ",".join(data)
    text = f'{{"data":[{listed}],"old":{old},"database":"shop","es":1589373515000,"ts":1589373560798{more}'
    return {"key": b"k1", "value": f'{text},"sqlType":{{"id":4}},"type":"{kind}"}}'.encode()}


ROWS = [
    {"key": b"k1", "value": None},
    message("INSERT", '{"id":"1","name":"a","weight":"1.5"}', '{"id":"2","name":null,"weight":"2"}'),
    message("UPDATE", '{"id":"1","name":"b","weight":"1.5"}', old='[{"name":"a"}]'),
    {**message("DELETE", '{"id":"2","name":"c"}'), "key": None},
]


def decode(plan: ReadPlan, *records: dict[str, Any], zone: str = "UTC") -> list[dict[str, Any]]:
    rows = RecordDecoder(plan, zone).decode(raw(records))
    assert rows.schema == arrow_schema(plan.columns)
    rows.validate(full=True)
    return list(rows.to_pylist())


class TestReading:
    def test_each_row_of_a_message_has_its_kind_and_the_messages_key_and_metadata(self) -> None:
        decoder = RecordDecoder(reading())
        rows = decoder.decode(raw(ROWS)).to_pylist()

        assert [tuple(row.values())[:4] for row in rows] == [
            ("+I", "k1", 1, "a"),
            ("+I", "k1", 2, None),
            ("-U", "k1", 1, "a"),
            ("+U", "k1", 1, "b"),
            ("-D", None, 2, "c"),
        ]
        assert [row["offset"] for row in rows] == ["101", "101", "102", "102", "103"]
        assert {row["origin"] for row in rows} == {"shop"}
        assert decoder.dropped[Reason.TOMBSTONE] == decoder.dropped.total() == 1
        assert next(iter(rows[0])) == ROW_KIND

    def test_metadata_of_the_format_is_cast_like_kafkas(self) -> None:
        (first, *_) = decode(reading(), ROWS[1])
        (there, *_) = decode(reading(), ROWS[1], zone="Asia/Tokyo")

        assert first["types"] == [("id", "4")]
        assert (str(first["day"]), str(first["at"])) == ("2020-05-13", "2020-05-13 12:39:20.798000")
        assert (str(there["day"]), str(there["at"])) == ("2020-05-13", "2020-05-13 21:39:20.798000")

    def test_metadata_that_a_message_lacks_is_null(self) -> None:
        there = ROWS[1]
        absent = {"key": b"k", "value": b'{"data":[{"id":"1"}],"type":"INSERT"}'}
        rows = decode(reading(), there, absent, there)

        assert [row["types"] for row in rows] == [[("id", "4")]] * 2 + [None] + [[("id", "4")]] * 2
        assert {rows[2][name] for name in ("origin", "day", "at")} == {None}

    def test_lists_of_metadata_that_a_message_lacks_are_null(self) -> None:
        text = CANAL.replace("value.sql-type", "value.pk-names").replace("MAP<STRING, STRING>", "ARRAY<VARCHAR(9)>")
        (table,) = read_tables(text.replace("  key.format: raw\n  key.fields: k\n", ""))
        named = b'{"data":[{"id":"1"}],"pkNames":["id"],"type":"INSERT"}'
        plain = {"value": b'{"data":[{"id":"1"}],"type":"INSERT"}'}
        rows = decode(read_plan(resolve(table, "read")), plain, {"value": named}, plain)

        assert [row["types"] for row in rows] == [None, ["id"], None]

    def test_some_columns_keep_the_row_kind_and_only_what_they_need_is_read(self) -> None:
        plan = reading("name")
        broken = message("INSERT", '{"id":"no number","name":"a"}', more=',"ts":"no number"')

        assert decode(plan, broken, ROWS[2]) == [
            {ROW_KIND: kind, "name": name} for kind, name in (("+I", "a"), ("-U", "a"), ("+U", "b"))
        ]

    def test_no_column_at_all_still_has_row_kinds(self) -> None:
        assert decode(reading(ROW_KIND), ROWS[2]) == [{ROW_KIND: "-U"}, {ROW_KIND: "+U"}]
        assert decode(reading("offset"), ROWS[3]) == [{ROW_KIND: "-D", "offset": "100"}]

    def test_not_null_is_enforced_for_each_row_of_a_message(self) -> None:
        records = [ROWS[1], message("INSERT", '{"id":"3"}', '{"name":"x"}', '{"id":"4"}')]
        with pytest.raises(RecordError, match=r"offset 101.*'id' is NULL, but it is declared NOT NULL"):
            decode(reading(), *records)
        lenient = RecordDecoder(reading(**{"value.canal-json.ignore-parse-errors": "true"}))

        assert [r["id"] for r in lenient.decode(raw(records)).to_pylist()] == [1, 2, 3, 4]
        assert lenient.dropped == {"not-null": 1}

    def test_a_bad_message_is_reported_with_its_location_and_reason(self) -> None:
        with pytest.raises(RecordError) as caught:
            decode(reading(), ROWS[1], message("TRUNCATE"))

        assert "partition 3, offset 101" in str(caught.value)
        assert "the value cannot be decoded: unknown 'type' value 'TRUNCATE'" in str(caught.value)

    def test_records_that_the_header_filter_leaves_out_may_be_broken(self) -> None:
        plan = reading(**{"scan.header-filter": "'op:yes'"})
        marked = [{**r, "headers": [{"key": "op", "value": b"yes" if i else b"no"}]} for i, r in enumerate(ROWS)]
        marked[0]["value"] = b"{broken"

        assert [row[ROW_KIND] for row in decode(plan, *marked)] == ["+I", "+I", "-U", "+U", "-D"]


class TestWriting:
    def batch(self, *kinds: str | None) -> pa.RecordBatch:
        plan = writing()
        rows = [
            {ROW_KIND: kind, "k": f"k{i}", "id": i, "name": None if i else "a", "weight": None}
            for i, kind in enumerate(kinds)
        ]
        loose = pa.schema([f.with_nullable(True) for f in arrow_schema(plan.columns)])
        return pa.RecordBatch.from_pylist(rows, schema=loose)

    def test_row_kinds_go_into_the_message_and_the_key_is_unchanged(self) -> None:
        records = RecordEncoder(writing()).encode(self.batch("+I", "-U", "+U", "-D"))

        assert records.column("key").to_pylist() == [b"k0", b"k1", b"k2", b"k3"]
        assert records.column("value").to_pylist() == [
            b'{"data":[{"id":0,"name":"a","weight":null}],"type":"INSERT"}',
            b'{"data":[{"id":1,"name":null,"weight":null}],"type":"DELETE"}',
            b'{"data":[{"id":2,"name":null,"weight":null}],"type":"INSERT"}',
            b'{"data":[{"id":3,"name":null,"weight":null}],"type":"DELETE"}',
        ]

    @pytest.mark.parametrize(
        ("kind", "error_text"),
        [
            ("x", "the row kind 'x' is not one of '+I', '-U', '+U' and '-D'"),
            (None, "_row_kind is NULL, but declared NOT"),
        ],
    )
    def test_a_wrong_row_kind_is_reported(self, kind: str | None, error_text: str) -> None:
        with pytest.raises(RecordError, match="row 2") as caught:
            RecordEncoder(writing()).encode(self.batch("+I", kind))

        assert error_text in str(caught.value)

    def test_written_changes_are_read_as_upserts_and_deletes(self) -> None:
        records = RecordEncoder(writing()).encode(self.batch("+I", "-U", "+U", "-D"))
        rows = decode(reading("id"), *records.to_pylist())

        assert [tuple(row.values()) for row in rows] == [("+I", 0), ("-D", 1), ("+I", 2), ("-D", 3)]
