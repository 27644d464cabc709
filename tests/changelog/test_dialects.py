from __future__ import annotations

import pickle

import pytest
from pyspark.errors import PySparkException

from kdsl.changelog import jdbc
from kdsl.changelog.address import name_database
from kdsl.changelog.dialects import Dialect, Statements, cast_type, dialect_of
from kdsl.errors import ChangelogError, SecretError
from kdsl.secrets import Secret


def statements(url: str, dialect: Dialect | None = None, columns: tuple[str, ...] = ('"id"', '"name"')) -> Statements:
    return Statements(url, dialect or dialect_of(url), "shop.users", ['"id"'], columns)


def test_postgres_inserts_on_conflict() -> None:
    assert statements("jdbc:postgresql://h/d").upserts("s1") == [
        'INSERT INTO shop.users ("id", "name") SELECT "id", "name" FROM s1 '
        'ON CONFLICT ("id") DO UPDATE SET "name" = EXCLUDED."name"'
    ]


def test_other_databases_merge() -> None:
    expected = (
        'MERGE INTO shop.users AS t USING s1 AS s ON (t."id" = s."id") WHEN MATCHED THEN UPDATE SET "name" = s."name" '
        'WHEN NOT MATCHED THEN INSERT ("id", "name") VALUES (s."id", s."name")'
    )

    assert statements("jdbc:derby:memory:d").upserts("s1") == [expected]
    assert statements("jdbc:sqlserver://h").upserts("s1") == [f"{expected};"]
    assert statements("jdbc:oracle:thin:@h").upserts("s1") == [expected.replace(" AS t", " t").replace(" AS s", " s")]


def test_mysql_updates_and_then_inserts() -> None:
    assert statements("jdbc:mysql://h/d").upserts("s1") == [
        'UPDATE shop.users SET "name" = (SELECT s."name" FROM s1 s WHERE s."id" = shop.users."id") '
        'WHERE EXISTS (SELECT 1 FROM s1 s WHERE s."id" = shop.users."id")',
        'INSERT INTO shop.users ("id", "name") SELECT s."id", s."name" FROM s1 s '
        'WHERE NOT EXISTS (SELECT 1 FROM shop.users WHERE shop.users."id" = s."id")',
    ]


def test_a_table_of_nothing_but_its_key_has_nothing_to_update() -> None:
    for url in ("jdbc:postgresql://h/d", "jdbc:derby:memory:d", "jdbc:mysql://h/d"):
        assert not any("SET" in text for text in statements(url, columns=('"id"',)).upserts("s1"))


def test_deletes_go_by_the_keys_of_a_staging_table() -> None:
    assert statements("jdbc:postgresql://h/d").deletes("s1") == (
        'DELETE FROM shop.users WHERE EXISTS (SELECT 1 FROM s1 s WHERE s."id" = shop.users."id")'
    )


def test_staging_tables_have_the_types_of_the_table() -> None:
    assert statements("jdbc:postgresql://h/d").staging("s1", ['"id"'], "shop.users") == (
        'CREATE TABLE s1 AS SELECT "id" FROM shop.users WHERE 1 = 0'
    )
    assert statements("jdbc:derby:memory:d").staging("s1", ['"id"'], "shop.users") == (
        'CREATE TABLE s1 AS SELECT "id" FROM shop.users WITH NO DATA'
    )


@pytest.mark.parametrize(
    ("spark", "there", "cast"),
    [
        ("string", "jsonb", "jsonb"),
        ("string", '"shop"."Mood"', '"shop"."Mood"'),
        ("string", "Mood", '"Mood"'),
        ("string", "varchar", None),
        ("array<string>", "_uuid", "_uuid"),
        ("array<string>", "_text", None),
        ("int", "numeric", None),
    ],
)
def test_strings_are_cast_to_the_types_of_postgres(spark: str, there: str, cast: str | None) -> None:
    assert cast_type("jdbc:postgresql://h/d", spark, there) == cast
    assert cast_type("jdbc:derby:memory:d", spark, there) is None


def test_strings_are_staged_as_strings_and_cast_when_they_are_merged() -> None:
    casts = {'"id"': "uuid", '"tags"': "_mood"}
    actual = Statements("jdbc:postgresql://h/d", "on-conflict", "t", ['"id"'], ['"id"', '"n"', '"tags"'], casts)
    assert actual.staging("s1", actual.columns, "t") == (
        'CREATE TABLE s1 AS SELECT CAST("id" AS text) AS "id", "n", CAST("tags" AS text[]) AS "tags" FROM t WHERE 1 = 0'
    )
    assert actual.deletes("s1") == (
        'DELETE FROM t WHERE EXISTS (SELECT 1 FROM (SELECT CAST("id" AS uuid) AS "id" FROM s1) s WHERE s."id" = t."id")'
    )
    assert actual.upserts("s1") == [
        'INSERT INTO t ("id", "n", "tags") SELECT "id", "n", "tags" FROM '
        '(SELECT CAST("id" AS uuid) AS "id", "n", CAST("tags" AS _mood) AS "tags" FROM s1) s '
        'ON CONFLICT ("id") DO UPDATE SET "n" = EXCLUDED."n", "tags" = EXCLUDED."tags"'
    ]


def test_rows_that_lack_values_are_updated_and_not_inserted() -> None:
    assert statements("jdbc:postgresql://h/d").updates("s1") == (
        'UPDATE shop.users SET "name" = s."name" FROM s1 s WHERE shop.users."id" = s."id"'
    )
    assert statements("jdbc:derby:memory:d").updates("s1") == (
        'UPDATE shop.users SET "name" = (SELECT s."name" FROM s1 s WHERE s."id" = shop.users."id") '
        'WHERE EXISTS (SELECT 1 FROM s1 s WHERE s."id" = shop.users."id")'
    )
    assert 'SET "id" = s."id" FROM' in statements("jdbc:postgresql://h/d", columns=('"id"',)).updates("s1")


def test_swapped_unique_values_are_freed_first() -> None:
    users = statements("jdbc:postgresql://h/d")
    assert users.free_unique_values("s1", '"name"', "text", nullable=True) == (
        'UPDATE shop.users SET "name" = NULL FROM (SELECT t."id", row_number() OVER () AS kdsl_n FROM shop.users t '
        'JOIN s1 s ON t."id" = s."id" AND t."name" IS DISTINCT FROM s."name") p WHERE shop.users."id" = p."id"'
    )
    for kind in ("integer", "numeric(10,2)", "date", "timestamp with time zone", "character varying(9)", "uuid"):
        result = users.free_unique_values("s1", '"name"', kind, nullable=False)
        assert result is not None
        assert "NULL" not in result
    assert users.free_unique_values("s1", '"name"', "shop.mood", nullable=False) is None


def test_an_unknown_dialect_and_an_invalid_address_are_reported() -> None:
    with pytest.raises(ValueError, match=r"there is no dialect 'merg' \(did you mean 'merge'\?\)"):
        jdbc("jdbc:derby:memory:d", "users", dialect="merg")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a JDBC address; write it as jdbc:postgresql://host/database"):
        jdbc("postgresql://h/d", "users")


def test_no_secret_is_shown() -> None:
    target = jdbc("jdbc:postgresql://ann:geheim1@h/d?password=geheim2", "users", {"password": "geheim3"})

    assert target.properties["password"] == Secret("geheim3")
    with pytest.raises(SecretError):
        pickle.dumps(target)
    assert repr(target) == "jdbc('jdbc:postgresql://h', 'users')"
    for said_by_java in ("jdbc:postgresql://ann:geheim1@h/d?password=geheim2: geheim3", "geheim1, geheim2 and geheim3"):
        assert "geheim" not in target._hide_secrets(said_by_java)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://db.example:5432/shop?ssl=true", "jdbc:postgresql://db.example:5432"),
        ("jdbc:postgresql://ann:HUSH@db/shop", "jdbc:postgresql://db"),
        ("jdbc:postgresql://ann:HU@SH@[::1]:5432/shop", "jdbc:postgresql://[::1]:5432"),
        ("jdbc:postgresql://ann:HU/SH@db/shop", "jdbc:postgresql://db"),
        ("jdbc:postgresql://ann:HU=SH@db/shop", "jdbc:postgresql"),
        ("jdbc:oracle:thin:scott/HUSH@//db:1521/svc", "jdbc:oracle://db:1521"),
        ("jdbc:oracle:thin:scott/HU@SH@tcps://db:1521/svc", "jdbc:oracle://db:1521"),
        ("jdbc:oracle:thin:scott/HUSH@(DESCRIPTION=(ADDRESS=(HOST=db)(PORT=1521)))", "jdbc:oracle"),
        ("jdbc:oracle:thin:scott/HUSH", "jdbc:oracle"),
        ("jdbc:teradata://db/DATABASE=x,USER=u,PASSWORD=HUSH", "jdbc:teradata://db"),
        ("jdbc:teradata://db/DATABASE=x,USER=u,PASSWORD=HU@SH", "jdbc:teradata"),
        ("jdbc:db2://db:50000/x:password=HUSH;user=u;", "jdbc:db2://db:50000"),
        ("jdbc:sqlserver://db\\instance:1433;user=u;password={HU;SH}", "jdbc:sqlserver"),
        ("jdbc:sqlserver://db:1433;user=u;password=HU@SH", "jdbc:sqlserver"),
        ("jdbc:mysql:loadbalance://db:1,db2:2/x?password=HUSH", "jdbc:mysql://db:1"),
        ("jdbc:mysql://address=(host=db)(user=u)(password=HUSH)/x", "jdbc:mysql"),
        ("jdbc:h2:mem:x;USER=u;PASSWORD=HUSH", "jdbc:h2"),
        ("jdbc:snowflake://db.example/?private_key_pwd=HUSH&token=HUSH", "jdbc:snowflake://db.example"),
        ("jdbc:sybase:Tds:db:5000/x?PASSWORD=HU\nSH", "jdbc:sybase"),
        ("jdbc:odd://ann:${env:HUSH}@db", "jdbc:odd://db"),
    ],
)
def test_of_an_address_the_driver_and_the_host_are_shown(url: str, shown: str) -> None:
    assert repr(jdbc(url, "t")) == f"jdbc({shown!r}, 't')"
    assert "SH" not in name_database(url).replace("${env:HUSH}", "")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("jdbc:postgresql://ann:HUSH@db:1/shop?ssl=true", "jdbc:postgresql://db:1/shop"),
        ("jdbc:postgresql://ann:HU/SH@db/shop", "jdbc:postgresql://db/shop"),
        ("jdbc:postgresql://db:1,db2:2/shop?password=HUSH", "jdbc:postgresql://db:1,db2:2/shop"),
        ("jdbc:db2://db:50000/x:password=HUSH;user=u;", "jdbc:db2://db:50000/x"),
        ("jdbc:oracle:thin:scott/HUSH", "jdbc:oracle"),
        ("${env:HUSH}", "jdbc"),
    ],
)
def test_an_address_names_its_database_without_a_login(url: str, name: str) -> None:
    assert name_database(url) == name


@pytest.mark.parametrize(
    ("url", "said_by_java"),
    [
        ("jdbc:oracle:thin:scott/tiger1@//db:1521/svc", "login of scott/tiger1 at db denied"),
        ("jdbc:teradata://db/USER=u,PASSWORD=tiger1,X=y", "bad parameter PASSWORD: tiger1"),
        ("jdbc:db2://db:50000/x:password=tiger1;user=u;", "user u, password tiger1"),
        ("jdbc:sqlserver://db;user=u;password={tiger1;&x}", "the login {tiger1;&x} or tiger1;&x fails"),
        ("jdbc:postgresql://ann:tiger1%40x@db/shop", "no such password: tiger1@x, tiger1%40x"),
        ("jdbc:postgresql://ann:tiger1@x@db/shop", "no such password: tiger1@x"),
        ("jdbc:mysql://db/x?user=u&password=tiger1\\", 'in JSON: {"password": "tiger1\\\\"}'),
        ("jdbc:odd://db/x?thing=${env:KDSL_TEST_TIGER}", "the thing is tiger1"),
    ],
)
def test_driver_messages_show_no_secret_of_the_address(
    url: str, said_by_java: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDSL_TEST_TIGER", "tiger1")

    shown = jdbc(url, "t")._hide_secrets(f"{said_by_java}; {url.removeprefix('jdbc:')}; {url}")

    assert "tiger1" not in shown
    assert "***" in shown


def test_an_address_with_a_password_in_it_does_not_pickle_and_one_with_a_reference_does() -> None:
    with pytest.raises(SecretError):
        pickle.dumps(jdbc("jdbc:oracle:thin:scott/tiger@//db:1521/svc", "t"))
    for url in ("jdbc:oracle:thin:scott/${env:PW}@//db/svc", "jdbc:teradata://db/PASSWORD=${env:PW},USER=u"):
        assert pickle.loads(pickle.dumps(jdbc(url, "t"))) == jdbc(url, "t")


def test_a_password_of_one_letter_leaves_driver_messages_readable() -> None:
    target = jdbc("jdbc:mysql://db/x?user=u&password=a", "t", {"password": "a"})

    message = target._hide_secrets("Access denied for user 'a'@'db' (using password: a); jdbc:mysql://x?password=a&b")

    assert message == "Access denied for user '***'@'db' (using password: ***); jdbc:mysql://x?password=***&b"


def test_what_java_raises_is_neither_cause_nor_context() -> None:
    class Session:
        """A session whose driver quotes its address; no database does so on demand."""

        def __getattr__(self, name: str) -> object:
            raise PySparkException(message="cannot connect to jdbc:oracle:thin:scott/tiger1@//db:1521/svc")

    target = jdbc("jdbc:oracle:thin:scott/tiger1@//db:1521/svc", "t")
    with pytest.raises(ChangelogError, match="cannot connect to jdbc:oracle://db:1521") as e:
        target.last_batch(Session(), "w")  # type: ignore[arg-type]

    assert (e.value.__cause__, e.value.__context__) == (None, None)
