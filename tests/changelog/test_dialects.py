from __future__ import annotations

import pickle

import pytest

from kdsl.changelog import jdbc
from kdsl.changelog.dialects import Dialect, Statements, dialect_of
from kdsl.secrets import Secret, SecretError


def said(url: str, dialect: Dialect | None = None, columns: tuple[str, ...] = ('"id"', '"name"')) -> Statements:
    return Statements(url, dialect or dialect_of(url), "shop.users", ['"id"'], columns)


def test_postgres_inserts_on_conflict() -> None:
    assert said("jdbc:postgresql://h/d").upserts("s1") == [
        'INSERT INTO shop.users ("id", "name") SELECT "id", "name" FROM s1 '
        'ON CONFLICT ("id") DO UPDATE SET "name" = EXCLUDED."name"'
    ]


def test_other_databases_merge() -> None:
    expected = (
        'MERGE INTO shop.users AS t USING s1 AS s ON (t."id" = s."id") WHEN MATCHED THEN UPDATE SET "name" = s."name" '
        'WHEN NOT MATCHED THEN INSERT ("id", "name") VALUES (s."id", s."name")'
    )

    assert said("jdbc:derby:memory:d").upserts("s1") == [expected]
    assert said("jdbc:sqlserver://h").upserts("s1") == [f"{expected};"]
    assert said("jdbc:oracle:thin:@h").upserts("s1") == [expected.replace(" AS t", " t").replace(" AS s", " s")]


def test_mysql_updates_and_then_inserts() -> None:
    assert said("jdbc:mysql://h/d").upserts("s1") == [
        'UPDATE shop.users SET "name" = (SELECT s."name" FROM s1 s WHERE s."id" = shop.users."id") '
        'WHERE EXISTS (SELECT 1 FROM s1 s WHERE s."id" = shop.users."id")',
        'INSERT INTO shop.users ("id", "name") SELECT s."id", s."name" FROM s1 s '
        'WHERE NOT EXISTS (SELECT 1 FROM shop.users WHERE shop.users."id" = s."id")',
    ]


def test_a_table_of_nothing_but_its_key_has_nothing_to_update() -> None:
    for url in ("jdbc:postgresql://h/d", "jdbc:derby:memory:d", "jdbc:mysql://h/d"):
        assert not any("SET" in text for text in said(url, columns=('"id"',)).upserts("s1"))


def test_deletes_go_by_the_keys_of_a_staging_table() -> None:
    assert said("jdbc:postgresql://h/d").deletes("s1") == (
        'DELETE FROM shop.users WHERE EXISTS (SELECT 1 FROM s1 s WHERE s."id" = shop.users."id")'
    )


def test_staging_tables_have_the_types_of_the_table() -> None:
    assert said("jdbc:postgresql://h/d").staging("s1", ['"id"']) == (
        'CREATE TABLE s1 AS SELECT "id" FROM shop.users WHERE 1 = 0'
    )
    assert said("jdbc:derby:memory:d").staging("s1", ['"id"']) == (
        'CREATE TABLE s1 AS SELECT "id" FROM shop.users WITH NO DATA'
    )


def test_what_is_no_dialect_and_no_address_is_told() -> None:
    with pytest.raises(ValueError, match=r"there is no dialect 'merg' \(did you mean 'merge'\?\)"):
        jdbc("jdbc:derby:memory:d", "users", dialect="merg")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="none of JDBC; write it as jdbc:postgresql://host/database"):
        jdbc("postgresql://h/d", "users")


def test_no_secret_is_shown() -> None:
    target = jdbc("jdbc:postgresql://ann:geheim1@h/d?password=geheim2", "users", {"password": "geheim3"})

    assert target.properties["password"] == Secret("geheim3")
    with pytest.raises(SecretError):
        pickle.dumps(target)
    assert repr(target) == "jdbc('jdbc:postgresql://h/d', 'users')"
    for said_by_java in ("jdbc:postgresql://ann:geheim1@h/d?password=geheim2: geheim3", "geheim1, geheim2 and geheim3"):
        assert "geheim" not in target._without_secrets(said_by_java)
