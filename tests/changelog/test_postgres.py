"""The statements for Postgres, in a real one and without Spark: types that are staged as strings, swapped values."""

from __future__ import annotations

import pytest

from kdsl.changelog.dialects import Statements, cast_type
from tests.postgres import Postgres

URL = "jdbc:postgresql://host/db"
pytestmark = pytest.mark.postgres


def quote(name: str) -> str:
    return f'"{name}"'


def test_strings_become_the_types_of_the_columns(postgres: Postgres) -> None:
    postgres.execute(
        """
        CREATE SCHEMA "Mixed Case";
        CREATE TYPE "Mixed Case"."Mood" AS ENUM ('sad', 'happy');
        CREATE TYPE tone AS ENUM ('ok');
        CREATE TABLE typed_rows (
            id uuid PRIMARY KEY, doc jsonb, plain json, own tone, other "Mixed Case"."Mood", ids uuid[], words text[],
            at inet
        );
        """
    )
    kinds = {"id": "uuid", "doc": "jsonb", "plain": "json", "own": "tone", "other": '"Mixed Case"."Mood"', "at": "inet"}
    lists = {"ids": "_uuid", "words": "_text"}
    casts = {quote(name): cast_type(URL, "string", kind) for name, kind in kinds.items()}
    casts |= {quote(name): cast_type(URL, "array<string>", kind) for name, kind in lists.items()}
    known = {name: kind for name, kind in casts.items() if kind is not None}
    statements = Statements(URL, "on-conflict", "typed_rows", ['"id"'], [*casts], known)
    first, second = "6f1e5b9a-2c3d-4e5f-8a9b-0c1d2e3f4a5b", "00000000-0000-0000-0000-000000000000"

    postgres.execute(
        f"{statements.staging('upserted', statements.columns, 'typed_rows')};"
        f"{statements.staging('deleted', statements.keys, 'typed_rows')}"
    )
    staged = ", ".join(f"staged.{name}" for name in statements.columns)
    postgres.execute(
        f"""
        INSERT INTO typed_rows (id) VALUES ('{second}');
        INSERT INTO deleted VALUES ('{second}');
        INSERT INTO upserted SELECT {staged} FROM (VALUES (
            '{first}', '{{"b":2}}', '[1]', 'ok', 'happy', '192.0.2.1', '{{{second}}}'::text[], '{{"x y"}}'::text[]
        )) AS staged ({", ".join(statements.columns)});
        """
    )
    for statement in (
        *statements.begin,
        statements.deletes("deleted"),
        *statements.upserts("upserted"),
        statements.updates("upserted"),
    ):
        postgres.execute(statement)

    shown = postgres.execute("SELECT id, doc->'b', plain->0, own, other, at, ids, words FROM typed_rows")
    expected = [first, "2", "1", "ok", "happy", "192.0.2.1", f"{{{second}}}", '{"x y"}']
    assert shown.splitlines() == ["\t".join(expected)]


UNIQUE = {
    "small": ("smallint", "n"),
    "number": ("int", "n"),
    "large": ("bigint", "n"),
    "price": ("numeric(10, 2)", "n"),
    "body": ("text", "'t' || n"),
    "short": ("varchar(8)", "'s' || n"),
    "ref": ("uuid", "('00000000-0000-0000-0000-00000000000' || n)::uuid"),
    "day": ("date", "date '2024-01-01' + n"),
    "at": ("timestamptz", "timestamptz '2024-01-01Z' + n * interval '1 day'"),
    "local": ("timestamp(3)", "timestamp '2024-01-01' + n * interval '1 day'"),
}


@pytest.mark.parametrize("constraint", ["UNIQUE", "NOT NULL UNIQUE"])
def test_values_of_unique_columns_can_be_swapped_whatever_their_type(postgres: Postgres, constraint: str) -> None:
    columns = ", ".join(f"{name} {kind} {constraint}" for name, (kind, _) in UNIQUE.items())
    values = ", ".join(f"{value} AS {name}" for name, (_, value) in UNIQUE.items())
    statements = Statements(URL, "on-conflict", "swaps", ['"id"'], ['"id"', *map(quote, UNIQUE)])
    postgres.execute(
        f"""
        DROP TABLE IF EXISTS swaps, turned;
        CREATE TABLE swaps (id bigint PRIMARY KEY, {columns}, kept text DEFAULT 'kept');
        INSERT INTO swaps SELECT n, {values} FROM generate_series(0, 3) n;
        {statements.staging("turned", statements.columns, "swaps")};
        INSERT INTO turned SELECT id, {values} FROM (SELECT id, (id::int + 1) % 3 AS n FROM generate_series(0, 2) id) t;
        """
    )
    with pytest.raises(AssertionError, match="duplicate key value"):
        postgres.execute(statements.upserts("turned")[0])

    types = postgres.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'swaps'::regclass AND attnum > 1 AND attname <> 'kept'"
    )
    parked = [
        statements.free_unique_values("turned", quote(name), kind, nullable=constraint == "UNIQUE")
        for name, kind in (line.split("\t") for line in types.splitlines())
    ]
    assert len(parked) == len(UNIQUE)
    assert None not in parked
    postgres.execute(
        ";\n".join(["BEGIN", *statements.begin, *map(str, parked), *statements.upserts("turned"), "COMMIT"])
    )

    same = postgres.execute("TABLE turned EXCEPT SELECT id, {} FROM swaps".format(", ".join(UNIQUE)))
    assert same == ""
    assert postgres.execute("SELECT count(*) FROM swaps WHERE kept = 'kept'").strip() == "4"
