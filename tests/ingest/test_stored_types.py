"""Rows that a sink table has keep their values when messages show other types; values that do not fit are not lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from kdsl.ingest import DeltaTables, Ingestion, JdbcSnapshot, JdbcTables, Memory, Pipeline, Route, Sink, Transform
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Setup
from tests.postgres import PASSWORD, Postgres
from tests.zones import zones

KEYED = Transform(r"\.*.\.*", primary_keys=("id",))
MOMENT = "2024-10-27 02:30:00"  # Berlin has it twice
GAPS = {"berlin": "2024-03-31 02:30:00", "york": "2024-03-10 02:30:00"}  # times that the two zones skip
PLAIN = {"n": 1, "b": True, "day": "2024-06-01", "big": 10**20}


def into(sink: Sink, setup: Setup, table: str, **options: Any) -> Ingestion:
    feed = setup.feed(**options.pop("feed", {}))
    return setup.ingestion(sink, feed, transform=[KEYED], route=[Route(r"\.*", table)], **options)


def expect_refusal(setup: Setup, ingestion: Ingestion, *reasons: str) -> None:
    """Run, and expect that the batch is refused before it is noted."""
    before = setup.state()
    with pytest.raises(StreamingQueryException) as e:
        setup.run(ingestion)
    assert all(reason in str(e.value) for reason in reasons), str(e.value)[:2000]
    assert setup.state() == before


class TestDelta:
    @pytest.fixture
    def delta(self, setup: Setup) -> DeltaTables:
        needs_delta()
        return DeltaTables(setup.lake)

    @pytest.mark.reliability
    def test_a_key_keeps_its_type_and_the_refusal_says_how_to_go_on(self, setup: Setup, delta: DeltaTables) -> None:
        a, b = 2**53, 2**53 + 1
        setup.produce({"id": a, "n": "a"}, {"id": b, "n": "b"})
        setup.run(into(delta, setup, "lake.t"))
        setup.produce({"id": 0.5, "n": "wrong"}, {"id": b, "n": "new b"})

        expect_refusal(setup, into(delta, setup, "lake.t"), "column 'id'", "from BIGINT to DOUBLE", "offset 2",
                "infer-schema.fixed-types: `id` BIGINT", "ingestion.ignore-errors: true")  # fmt: skip
        feed = {"value": Json(infer_fixed_types="`id` BIGINT"), "ignore_errors": True}
        setup.run(into(delta, setup, "lake.t", feed=feed))

        assert {row["id"]: row["n"] for row in setup.table("lake", "t")} == {a: "a", b: "new b"}
        assert setup.state().counts == {"dirty": 1}

    def test_earlier_rows_keep_their_values_and_how_they_are_spelled(self, setup: Setup, delta: DeltaTables) -> None:
        """In a session of Berlin and a JVM of New York."""
        berlin = Pipeline(time_zone="Europe/Berlin")
        first = {**PLAIN, **GAPS, "ts": MOMENT, "x": 7, "text": 8}
        with zones(setup.spark, "America/New_York"):
            setup.produce({"id": 1, **first})
            setup.run(into(delta, setup, "lake.t", pipeline=berlin))
            words = dict.fromkeys([*PLAIN, "text"], "word")
            setup.produce({"id": 2, "ts": "2024-06-01T10:00:00Z", "x": 0.5, **words}, {"id": 3, **first})
            setup.run(into(delta, setup, "lake.t", pipeline=berlin))

        rows = {row.pop("id"): row for row in setup.table("lake", "t")}
        assert rows[1] == rows[3]
        assert {name: rows[1][name].isoformat(" ") for name in ("ts", *GAPS)} == {"ts": MOMENT, **GAPS}
        assert rows[2]["ts"].isoformat(" ") == "2024-06-01 10:00:00"
        texts = {"n": "1", "b": "true", "day": "2024-06-01", "big": str(10**20), "text": "8"}
        assert {name: rows[1][name] for name in texts} == texts
        assert (rows[1]["x"], rows[2]["x"]) == (7.0, 0.5)

    @pytest.mark.reliability
    def test_large_integers_of_earlier_rows_do_not_become_double(self, setup: Setup, delta: DeltaTables) -> None:
        setup.produce({"id": 1, "n": 2**53 + 1})
        setup.run(into(delta, setup, "lake.t"))
        setup.produce({"id": 2, "n": 0.5})

        expect_refusal(
            setup, into(delta, setup, "lake.t"), "column 'n'", "1 row has an integer beyond 2^53", "`n` STRING"
        )
        setup.run(into(delta, setup, "lake.t", feed={"value": Json(infer_fixed_types="`n` STRING")}))

        assert {row["id"]: row["n"] for row in setup.table("lake", "t")} == {1: str(2**53 + 1), 2: "0.5"}

    def test_a_word_among_numbers_with_fractions_is_refused_or_null_and_counted(
        self, setup: Setup, delta: DeltaTables
    ) -> None:
        setup.produce({"id": 1, "d": 1.0e10, "at": MOMENT})
        setup.run(into(delta, setup, "lake.t"))
        setup.produce({"id": 2, "d": "n/a", "at": "soon"}, {"id": 3, "d": 1.50, "at": "2024-10-27T02:30:00Z"})

        reasons = ("column 'd': 1 value does not fit DOUBLE", "column 'at': 1 value does not fit TIMESTAMP(6)")
        expect_refusal(setup, into(delta, setup, "lake.t"), *reasons, "exclude.schema.changes: alter.column.type")
        setup.run(into(DeltaTables(setup.lake, exclude_changes=("alter.column.type",)), setup, "lake.t"))

        rows = {row["id"]: row for row in setup.table("lake", "t")}
        assert [rows[i]["d"] for i in (1, 2, 3)] == [1.0e10, None, 1.5]
        assert rows[1]["at"] == rows[3]["at"]
        assert setup.state().counts == {"lost-values": 2}

    @pytest.mark.parametrize("order", [pytest.param(("a", "b"), marks=pytest.mark.reliability), ("b", "a")])
    def test_tables_of_one_sink_table_come_in_any_order(
        self, setup: Setup, delta: DeltaTables, order: tuple[str, str]
    ) -> None:
        rules = [
            Transform("a", projection="*, 'x' AS origin, __table_name__ AS source", primary_keys=("id",)),
            Transform("b", projection="*, 'longer' AS source", primary_keys=("id",)),
        ]
        feed = setup.feed(value=Json(table_id_fields="t"))
        ingestion = setup.ingestion(delta, feed, transform=rules, route=[Route(r"\.*", "lake.t")])
        for i, table in enumerate(order):
            setup.produce({"t": table, "id": i})
            setup.run(ingestion)

        rows = {row["t"]: (row["origin"], row["source"]) for row in setup.table("lake", "t")}
        assert rows == {"a": ("x", "a"), "b": (None, "longer")}


@pytest.mark.postgres
class TestPostgres:
    def sink(self, postgres: Postgres, **options: Any) -> JdbcTables:
        return JdbcTables(postgres.url, username="kdsl", password=PASSWORD, **options)

    @pytest.mark.reliability
    def test_earlier_rows_keep_their_values_and_how_they_are_spelled(self, setup: Setup, postgres: Postgres) -> None:
        """In a session of Berlin and a JVM of New York."""
        table, berlin = f"s{setup.topic[-8:]}", Pipeline(time_zone="Europe/Berlin")
        ingestion = into(self.sink(postgres), setup, f"public.{table}", pipeline=berlin)
        first = {**PLAIN, **GAPS, "ts": MOMENT, "x": 7}
        with zones(setup.spark, "America/New_York"):
            setup.produce({"id": 1, **first})
            setup.run(ingestion)
            setup.produce({"id": 2, "ts": "2024-06-01T10:00:00Z", "x": 0.5, **dict.fromkeys(PLAIN, "word")},
                          {"id": 3, **first})  # fmt: skip
            setup.run(ingestion)

        rows = (
            postgres.execute(f"SELECT ts, n, b, day, big, x, berlin, york FROM {table} ORDER BY id")
            .strip()
            .splitlines()
        )
        assert rows[0] == rows[2] == "\t".join([MOMENT, "1", "true", "2024-06-01", str(10**20), "7", *GAPS.values()])
        assert rows[1].startswith("2024-06-01 10:00:00\t")

    def test_columns_of_the_user_keep_their_types(self, setup: Setup, postgres: Postgres) -> None:
        table = f"u{setup.topic[-8:]}"
        columns = (
            "id bigint PRIMARY KEY, amount numeric(10,2), whole numeric(10), code char(4), at timestamp, z timestamptz"
        )
        postgres.execute(f"CREATE TABLE {table} ({columns})")
        setup.produce({"id": 1, "amount": 12.5, "whole": 7.0, "code": "ab", "at": "2024-10-27T02:30:00Z", "z": MOMENT})
        setup.run(into(self.sink(postgres), setup, f"public.{table}"))
        setup.produce({"id": 2, "amount": 1.005, "whole": 0.5, "code": "longer"})

        expect_refusal(setup, into(self.sink(postgres), setup, f"public.{table}"),
                *(f"column {name!r}: 1 value does not fit" for name in ("amount", "whole", "code")))  # fmt: skip
        setup.run(into(self.sink(postgres, exclude_changes=("alter.column.type",)), setup, f"public.{table}"))

        types = "SELECT string_agg(format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute "
        types += f"WHERE attrelid = '{table}'::regclass AND attnum > 0"
        assert postgres.execute(types).strip() == (
            "bigint, numeric(10,2), numeric(10,0), character(4), timestamp without time zone, timestamp with time zone"
        )
        texts = f"SELECT amount, whole, code, at, z AT TIME ZONE 'UTC' FROM {table} ORDER BY id"
        one, two = postgres.execute(texts).rstrip("\n").splitlines()
        assert one.split("\t") == ["12.50", "7", "ab  ", MOMENT, MOMENT]
        assert not two.strip("\t \\N")
        assert setup.state().counts == {"lost-values": 3}

    def test_a_copy_has_all_digits_and_times_in_every_time_zone(self, setup: Setup, postgres: Postgres) -> None:
        table = f"c{setup.topic[-8:]}"
        postgres.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, plain numeric, long numeric(50,25), narrow numeric(10,2), "
            "plains numeric[], narrows numeric(10,2)[], times timestamp[], instants timestamptz[], days date[], "
            "words text[], numbers int[], at timestamp, z timestamptz, code char(3), bits bit(3), price money)"
        )
        digits, more = "0.1234567890123456789055", "1.1234567890123456789012345"
        postgres.execute(
            f"INSERT INTO {table} VALUES (1, {digits}, {more}, 12.5, ARRAY[{digits}, NULL], ARRAY[12.5], "
            f"ARRAY['{MOMENT}'::timestamp], ARRAY['{MOMENT}Z'::timestamptz], ARRAY['1500-02-28'::date], ARRAY['a,b'], "
            f"ARRAY[1], '{MOMENT}', '{MOMENT}Z', 'ab', B'101', 12.5)"
        )
        writer = MemoryWriter()
        source = JdbcSnapshot(postgres.url, username="kdsl", password=PASSWORD, tables=(f"public.{table}",))
        pipeline = Pipeline(time_zone="Europe/Berlin")

        with zones(setup.spark, "America/New_York"):
            Ingestion(source, Memory(), pipeline=pipeline).copy(setup.spark, setup.checkpoint, writer=writer)

        (row,) = next(iter(writer.tables.values())).rows()
        assert (row["plain"], row["long"], row["narrow"]) == (digits, more, Decimal("12.50"))
        assert (row["plains"], row["narrows"]) == ([digits, None], [Decimal("12.50")])
        assert [one.isoformat(" ") for one in (*row["times"], row["at"])] == [MOMENT] * 2
        assert [one.isoformat(" ") for one in (*row["instants"], row["z"])] == [f"{MOMENT}+00:00"] * 2
        assert [str(one) for one in row["days"]] == ["1500-02-28"]
        assert (row["words"], row["numbers"]) == (["a,b"], [1])
        assert (row["code"], row["bits"], row["price"]) == ("ab ", "101", "$12.50")
