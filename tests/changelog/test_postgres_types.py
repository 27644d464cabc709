"""Types of Postgres and column types, and the statements that create and change tables."""

from __future__ import annotations

import pytest
from hypothesis import given

from kdsl.changelog.postgres import add_column, change_type, column_type, create_schema, create_table, postgres_type
from kdsl.types import model as t
from kdsl.types.widening import holds
from tests.strategies import scalar_types


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bigint", t.BigInt()), ("numeric", t.Decimal(38, 18)), ("numeric(10,2)", t.Decimal(10, 2)),
        ("numeric(5)", t.Decimal(5, 0)), ("numeric(100,2)", t.Decimal(38, 18)), ("character varying(7)", t.VarChar(7)),
        ("character varying", t.STRING), ("character(3)", t.Char(3)), ("text", t.STRING), ("bytea", t.BYTES),
        ("timestamp without time zone", t.Timestamp(6)), ("timestamp(3) without time zone", t.Timestamp(3)),
        ("timestamp(0) with time zone", t.TimestampLtz(0)), ("time without time zone", t.Time(6)),
        ("time with time zone", t.STRING), ("uuid", t.STRING), ('"Mixed Case"."Mood"', t.STRING), ("text[]", t.STRING),
    ],
)  # fmt: skip
def test_types_of_postgres(name: str, kind: t.DataType) -> None:
    assert column_type(name) == kind


@given(scalar_types())
def test_the_type_of_a_column_holds_its_values(kind: t.DataType) -> None:
    """Postgres reports a type in full, as `column_type` reads it."""
    name = postgres_type(kind)
    assert name is not None
    in_full = f"{name} without time zone" if name.startswith("time") and "zone" not in name else name
    digits = getattr(kind, "precision", 0) if isinstance(kind, t.Time | t.Timestamp | t.TimestampLtz) else 0

    assert digits > 6 or holds(column_type(in_full), kind)


def test_nested_types_have_none() -> None:
    assert postgres_type(t.Array(t.STRING)) is None


def test_statements() -> None:
    columns = [t.Field("id", t.BigInt(nullable=False)), t.Field('a "b"', t.STRING)]

    assert create_schema('"s"."t"') == 'CREATE SCHEMA IF NOT EXISTS "s"'
    assert create_schema('"t"') is None
    assert create_table('"s"."t"', columns, ["id"]) == (
        'CREATE TABLE IF NOT EXISTS "s"."t" ("id" bigint NOT NULL, "a ""b""" text, PRIMARY KEY ("id"))'
    )
    assert create_table('"t"', columns[:1], []) == 'CREATE TABLE IF NOT EXISTS "t" ("id" bigint NOT NULL)'
    assert add_column('"t"', columns[1]) == 'ALTER TABLE "t" ADD COLUMN IF NOT EXISTS "a ""b""" text'
    assert change_type('"t"', t.Field("c", t.STRING), t.BigInt()) == (
        'ALTER TABLE "t" ALTER COLUMN "c" TYPE text USING "c"::text'
    )
    assert "encode" in change_type('"t"', t.Field("c", t.STRING), t.BYTES)
