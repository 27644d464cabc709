"""Copies of tables of a real MariaDB, through MySQL's driver."""

from __future__ import annotations

import json
import threading
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.changelog.connection import DatabaseTable
from kdsl.cluster import Cluster
from kdsl.errors import ChangelogError, KdslError
from kdsl.ingest import DeltaTables, Ingestion, JdbcSnapshot, KafkaTopics, Memory, MySqlSnapshot, Route, Transform
from kdsl.ingest.run.batch import IngestError
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.ingest.run.sources.databases import select_tables
from kdsl.secrets import DIRECTORY
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Failing, Setup
from tests.ingest.test_yaml_examples import VARIABLES, text_of
from tests.mariadb import PASSWORD, USER, MariaDb

if TYPE_CHECKING:
    from kdsl.testing.pytest_plugin import MakeTopic


def schema_of(setup: Setup, mariadb: MariaDb, statements: str = "") -> str:
    """A new database, in which statements are run."""
    name = f"d{setup.topic[-8:]}"
    mariadb.execute(f"CREATE DATABASE {name}; USE {name}; SET sql_mode = ''; {statements}")
    return name


def source(mariadb: MariaDb, *tables: str, **options: Any) -> MySqlSnapshot:
    return MySqlSnapshot(
        hostname="127.0.0.1", port=mariadb.port, username=USER, password=PASSWORD, tables=tables, startup="snapshot",
        **options,
    )  # fmt: skip


def copy(setup: Setup, end: MySqlSnapshot | JdbcSnapshot, **parts: Any) -> MemoryWriter:
    """Copy into memory."""
    writer = MemoryWriter()
    assert Ingestion(end, Memory(), **parts).copy(setup.spark, setup.checkpoint, writer=writer)
    return writer


TYPES = """
CREATE TABLE t (
    id BIGINT UNSIGNED PRIMARY KEY, flag TINYINT(1), tiny TINYINT(4), utiny TINYINT UNSIGNED, small SMALLINT UNSIGNED,
    medium MEDIUMINT, i INT, ui INT UNSIGNED, big BIGINT, bit1 BIT(1), bit5 BIT(5), bit64 BIT(64),
    d DECIMAL(10, 3), wide DECIMAL(50, 2), f FLOAT, dd DOUBLE, y YEAR,
    day DATE, at DATETIME(6), seconds DATETIME, moment TIMESTAMP(3) NULL, clock TIME(2),
    c CHAR(5), v VARCHAR(20), text LONGTEXT, e ENUM('a', 'b'), s SET('x', 'y'), j JSON,
    bl LONGBLOB, fixed BINARY(3), place POINT, own UUID, `a.b``c` INT
);
INSERT INTO t VALUES (
    18446744073709551615, 2, -3, 255, 65535, -8388608, -1, 4294967295, -9223372036854775808, 1, 21,
    18446744073709551615, 1.5, 123456789012345678901234567890123456789012345678.25, 1.1, 1e300, 2024,
    '1582-10-10', '2024-03-31 02:30:00.123456', '2024-03-31 02:30:00', '2024-03-31 08:00:00.5', '23:59:59.25',
    'ab ', 'ü😀', 'x\\0y', 'a', 'x,y', '{"a": 1}', x'00ff', x'0102', POINT(1, 2),
    '123e4567-e89b-12d3-a456-426655440000', 7
), (1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""


@pytest.mark.mariadb
@pytest.mark.parametrize(
    "zone", [*(pytest.param(z, marks=pytest.mark.reliability) for z in ("UTC", "America/New_York")), "Europe/Berlin"]
)
def test_types_are_read_without_loss(setup: Setup, mariadb: MariaDb, zone: str, request: pytest.FixtureRequest) -> None:
    """02:30 on 31 March 2024 does not exist in Berlin; the server's time zone is +05:30."""
    name = schema_of(setup, mariadb, TYPES)
    before = setup.spark.conf.get("spark.sql.session.timeZone")
    request.addfinalizer(lambda: setup.spark.conf.set("spark.sql.session.timeZone", str(before)))
    setup.spark.conf.set("spark.sql.session.timeZone", zone)
    rows = copy(setup, source(mariadb, f"{name}.t")).tables[name, "t"].rows()

    schema = setup.state().upstream[name, "t"].schema
    assert schema.primary_key == ("id",)
    assert {f.name: str(f.type) for f in schema.columns} == {
        "id": "DECIMAL(20, 0) NOT NULL", "flag": "BOOLEAN", "tiny": "TINYINT", "utiny": "SMALLINT", "small": "INT",
        "medium": "INT", "i": "INT", "ui": "BIGINT", "big": "BIGINT", "bit1": "BOOLEAN", "bit5": "BIGINT",
        "bit64": "DECIMAL(20, 0)", "d": "DECIMAL(10, 3)", "wide": "STRING", "f": "FLOAT", "dd": "DOUBLE", "y": "INT",
        "day": "DATE", "at": "TIMESTAMP(6)", "seconds": "TIMESTAMP(0)", "moment": "TIMESTAMP_LTZ(3)",
        "clock": "TIME(2)", "c": "CHAR(5)", "v": "VARCHAR(20)", "text": "STRING", "e": "STRING", "s": "STRING",
        "j": "STRING", "bl": "BYTES", "fixed": "BYTES", "place": "STRING", "own": "STRING", "a.b`c": "INT",
    }  # fmt: skip
    (row,) = (row for row in rows if row["id"] != 1)
    place, moment = json.loads(row.pop("place")), row.pop("moment")
    assert place["coordinates"] == [1, 2]
    assert moment.astimezone(UTC) == datetime(2024, 3, 31, 2, 30, 0, 500_000, tzinfo=UTC)
    assert row.pop("f") == pytest.approx(1.1, rel=1e-6)
    assert row == {
        "id": Decimal(18446744073709551615), "flag": True, "tiny": -3, "utiny": 255, "small": 65535, "medium": -8388608,
        "i": -1, "ui": 4294967295, "big": -9223372036854775808, "bit1": True, "bit5": 21,
        "bit64": Decimal(18446744073709551615), "d": Decimal("1.500"),
        "wide": "123456789012345678901234567890123456789012345678.25", "dd": 1e300, "y": 2024,
        "day": date(1582, 10, 10), "at": datetime(2024, 3, 31, 2, 30, 0, 123456),
        "seconds": datetime(2024, 3, 31, 2, 30), "clock": time(23, 59, 59, 250_000), "c": "ab", "v": "ü😀",
        "text": "x\0y", "e": "a", "s": "x,y", "j": '{"a": 1}', "bl": b"\x00\xff", "fixed": b"\x01\x02\x00",
        "own": "123e4567-e89b-12d3-a456-426655440000", "a.b`c": 7,
    }  # fmt: skip
    (empty,) = (row for row in rows if row["id"] == 1)
    assert {value for column, value in empty.items() if column not in ("id", "flag")} == {None}
    assert empty["flag"] is False


@pytest.mark.mariadb
def test_tinyint_1_may_stay_a_number(setup: Setup, mariadb: MariaDb) -> None:
    name = schema_of(setup, mariadb, "CREATE TABLE t (n TINYINT(1)); INSERT INTO t VALUES (5), (NULL), (-1)")
    writer = copy(setup, source(mariadb, f"{name}.t", tiny_boolean=False))

    assert writer.appended[name, "t"] == [{"n": 5}, {"n": None}, {"n": -1}]


ZEROS = """
CREATE TABLE t (id INT PRIMARY KEY, day DATE, at DATETIME, moment TIMESTAMP NULL);
INSERT INTO t VALUES (1, '0000-00-00', '2024-00-10 00:00:00', '0000-00-00 00:00:00'), (2, '2024-01-01', NULL, NULL);
CREATE TABLE spans (id INT PRIMARY KEY, span TIME);
INSERT INTO spans VALUES (1, '-01:00:00'), (2, '24:00:00'), (3, '838:59:59'), (4, '23:59:59');
CREATE VIEW readable AS SELECT id, CAST(span AS CHAR) AS span FROM spans;
"""


@pytest.mark.mariadb
class TestValuesWithoutAType:
    def test_they_are_refused_before_anything_is_written(self, setup: Setup, mariadb: MariaDb) -> None:
        name = schema_of(setup, mariadb, ZEROS)
        writer = MemoryWriter()
        ingestion = Ingestion(source(mariadb, f"{name}.t", f"{name}.spans"), Memory())
        with pytest.raises(IngestError) as error:
            ingestion.copy(setup.spark, setup.checkpoint, writer=writer)

        lines = str(error.value).splitlines()
        assert [line.split(";")[0].strip() for line in lines[1:]] == [
            f"{name}.t, column 'day': 1 value is a zero date, such as 0000-00-00, which DATE does not hold",
            f"{name}.t, column 'at': 1 value is a zero date, such as 0000-00-00, which TIMESTAMP(0) does not hold",
            f"{name}.t, column 'moment': 1 value is a zero date, such as 0000-00-00, which TIMESTAMP_LTZ(0) does not "
            "hold",
            f"{name}.spans, column 'span': 3 values are not times of a day, which TIME(0) does not hold",
        ]
        assert "jdbc.properties.zeroDateTimeBehavior: CONVERT_TO_NULL" in lines[1]
        assert not writer.tables

    def test_what_was_refused_is_copied_as_the_message_advises(self, setup: Setup, mariadb: MariaDb) -> None:
        name = schema_of(setup, mariadb, ZEROS)
        with pytest.raises(IngestError, match=r"CONVERT_TO_NULL(.|\n)*copy a view that converts the column"):
            copy(setup, source(mariadb, f"{name}.t", f"{name}.spans"))

        properties = {"zeroDateTimeBehavior": "CONVERT_TO_NULL"}
        writer = copy(setup, source(mariadb, f"{name}.t", f"{name}.readable", driver_properties=properties))

        assert writer.tables[name, "t"].rows() == [
            {"id": 1, "day": None, "at": None, "moment": None},
            {"id": 2, "day": date(2024, 1, 1), "at": None, "moment": None},
        ]
        spans = [row["span"] for row in sorted(writer.appended[name, "readable"], key=lambda row: row["id"])]
        assert spans == ["-01:00:00", "24:00:00", "838:59:59", "23:59:59"]
        assert setup.state().counts == {"zero-dates": 3}


@pytest.mark.mariadb
class TestTables:
    def test_patterns_select_tables_with_any_names(self, setup: Setup, mariadb: MariaDb) -> None:
        name = schema_of(setup, mariadb, """
            CREATE TABLE users_1 (b INT, a INT, n INT, PRIMARY KEY (a, b)); INSERT INTO users_1 VALUES (1, 2, 3);
            CREATE TABLE users_2 (b INT, a INT, PRIMARY KEY (a, b)); INSERT INTO users_2 VALUES (4, 5);
            CREATE TABLE users_old (a INT);
            CREATE TABLE `or.de``rs "x"` (`i d` INT PRIMARY KEY); INSERT INTO `or.de``rs "x"` VALUES (7);
            CREATE VIEW users_view AS SELECT 1 AS one;
        """)  # fmt: skip
        end = source(mariadb, rf"{name}.users_\.*", rf"{name}.or\.*", excluded=(rf"{name}.\.*_old",))
        writer = copy(setup, end, route=[Route(rf"{name}.users_\.*", "all.users")])

        assert writer.tables["all", "users"].rows() == [{"b": 1, "a": 2, "n": 3}, {"b": 4, "a": 5, "n": None}]
        assert writer.tables[name, 'or.de`rs "x"'].rows() == [{"i d": 7}]
        assert set(setup.state().upstream) == {(name, "users_1"), (name, "users_2"), (name, 'or.de`rs "x"')}
        assert setup.state().upstream[name, "users_1"].schema.primary_key == ("a", "b")

    def test_a_pattern_without_tables_is_an_error(self, setup: Setup, mariadb: MariaDb) -> None:
        name = schema_of(setup, mariadb, "CREATE TABLE orders (id INT)")
        with pytest.raises(ChangelogError, match=rf"no table fits the pattern '{name}\.ordres' \(did you mean '{name}"):
            Ingestion(source(mariadb, f"{name}.ordres"), Memory()).copy(setup.spark, setup.checkpoint)

    def test_the_source_jdbc_reads_them_in_the_same_way(self, setup: Setup, mariadb: MariaDb) -> None:
        name = schema_of(setup, mariadb, "CREATE TABLE t (at DATETIME); INSERT INTO t VALUES ('2024-03-31 02:30:00')")
        end = JdbcSnapshot(f"{mariadb.url}{name}", username=USER, password=PASSWORD, tables=("t",))

        assert copy(setup, end).appended["t",] == [{"at": datetime(2024, 3, 31, 2, 30)}]


@pytest.mark.parametrize(
    ("patterns", "ids"),
    [
        (("a.t",), [("a", "t")]),
        (("t",), [("t",)]),
        ((r"\.*.t",), [("a", "t"), ("b", "t")]),
        ((r"b.\.*", "t"), [("b", "t"), ("b", "x.y"), ("t",)]),
        (("b.x.y",), [("b", "x.y")]),
        (("a.v",), [("a", "v")]),
        ((r"a.\.*",), [("a", "t")]),
        (("a.t", "t"), [("a", "t")]),
    ],
)
def test_selecting_tables(patterns: tuple[str, ...], ids: list[tuple[str, ...]]) -> None:
    names = [("a", "t", False), ("a", "v", True), ("b", "t", False), ("b", "x.y", False)]
    tables = [DatabaseTable(schema, name, is_view, "") for schema, name, is_view in names]

    assert list(select_tables(tables, patterns, (), "a")) == ids


def test_mistakes_are_reported_without_a_server() -> None:
    end = JdbcSnapshot("jdbc:mariadb://h/d", tables=("a.(", "b"), excluded=("c.{",))
    problems = Ingestion(end, Memory()).problems()

    assert [(p.code, p.where.path) for p in problems] == [
        ("ingest-selector", "$.source.tables"), ("ingest-selector", "$.source.tables.exclude"),
        ("ingest-jdbc", "$.source.url"),
    ]  # fmt: skip
    assert "write jdbc:mysql://" in problems[-1].fix


@pytest.mark.mariadb
class TestACopy:
    ROWS = 20_000

    def test_a_table_that_changes_meanwhile_is_copied_as_it_is_at_one_moment(
        self, setup: Setup, mariadb: MariaDb
    ) -> None:
        """Amounts move between accounts, so that their sum never changes."""
        name = schema_of(setup, mariadb, f"""
            CREATE TABLE accounts (id INT PRIMARY KEY, amount BIGINT NOT NULL);
            INSERT INTO accounts SELECT seq, 100 FROM seq_1_to_{self.ROWS};
        """)  # fmt: skip
        stopping, moved = threading.Event(), threading.Semaphore(0)

        def move() -> None:
            step = 0
            while not stopping.is_set():
                step += 1
                one, other = step % self.ROWS + 1, self.ROWS - step % self.ROWS
                mariadb.execute("".join(
                    f"BEGIN; UPDATE {name}.accounts SET amount = amount - 7 WHERE id = {(one + i) % self.ROWS + 1}; "
                    f"UPDATE {name}.accounts SET amount = amount + 7 WHERE id = {(other + i) % self.ROWS + 1}; COMMIT;"
                    for i in range(200)
                ))  # fmt: skip
                moved.release()

        thread = threading.Thread(target=move)
        thread.start()
        try:
            assert moved.acquire(timeout=120)
            rows = copy(setup, source(mariadb, f"{name}.accounts", fetch_size=100)).tables[name, "accounts"].rows()
        finally:
            stopping.set()
            thread.join()

        assert len(rows) == self.ROWS
        assert sum(row["amount"] for row in rows) == 100 * self.ROWS
        assert {row["amount"] for row in rows} != {100}

    @pytest.mark.reliability
    def test_one_that_was_interrupted_goes_on(self, setup: Setup, mariadb: MariaDb) -> None:
        needs_delta()
        name = schema_of(setup, mariadb, """
            CREATE TABLE a (id INT PRIMARY KEY, at DATETIME(3)); INSERT INTO a VALUES (1, '2024-01-01 00:00:00.123');
            CREATE TABLE b (id INT, clock TIME); INSERT INTO b VALUES (1, '10:00:00');
        """)  # fmt: skip
        sink = DeltaTables(setup.lake)
        ingestion = Ingestion(source(mariadb, rf"{name}.\.*"), sink)
        failing = Failing(sink.writer(1), 0, "after the first table")
        with pytest.raises(RuntimeError, match="gone"):
            ingestion.copy(setup.spark, setup.checkpoint, writer=failing)
        mariadb.execute(f"INSERT INTO {name}.a VALUES (2, NULL); INSERT INTO {name}.b VALUES (2, NULL)")
        assert ingestion.copy(setup.spark, setup.checkpoint)
        assert not ingestion.copy(setup.spark, setup.checkpoint)

        assert setup.table(name, "a") == [{"id": 1, "at": datetime(2024, 1, 1, 0, 0, 0, 123_000)}]
        assert setup.table(name, "b") == [{"id": 1, "clock": "10:00:00"}, {"id": 2, "clock": None}]

    def test_into_kafka_exactly_once(self, setup: Setup, mariadb: MariaDb, kdsl_topic: MakeTopic) -> None:
        topic = kdsl_topic()
        name = schema_of(setup, mariadb, "CREATE TABLE a (id INT PRIMARY KEY); INSERT INTO a VALUES (1), (2)")
        sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic, delivery="exactly-once",
                           transactional_id_prefix=topic)  # fmt: skip
        ingestion = Ingestion(source(mariadb, f"{name}.a"), sink)
        failing = Failing(sink.writer(1), 0, "after all tables")
        with pytest.raises(RuntimeError, match="gone"):
            ingestion.copy(setup.spark, setup.checkpoint, writer=failing)
        assert ingestion.copy(setup.spark, setup.checkpoint)

        assert sorted(json.loads(r.value() or b"")["after"]["id"] for r in setup.kafka.read(topic)) == [1, 2]


@pytest.mark.mariadb
def test_the_example_of_the_documentation_runs(
    setup: Setup, mariadb: MariaDb, kdsl_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``scan.startup.mode: snapshot``, because the binlog is not read."""
    name, topic = schema_of(setup, mariadb, "CREATE TABLE m (id INT PRIMARY KEY, n VARCHAR(5)); "
                            "INSERT INTO m VALUES (1, 'a')"), kdsl_topic()  # fmt: skip
    for key, secret in {"hostname": "127.0.0.1", "username": USER, "password": PASSWORD}.items():
        (tmp_path / f"mysql.{key}").write_text(secret)
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    variables = VARIABLES | {
        "mysql.port": str(mariadb.port), "mysql.source.table": f"{name}.m", "kafka.topic": topic,
        "kafka.bootstraps.server": setup.kafka.bootstrap_servers,
    }  # fmt: skip
    text = text_of("from-mysql").replace("  server-id:", "  scan.startup.mode: snapshot\n  server-id:")
    ingestion, problems = Ingestion.read(text, variables)
    assert ingestion is not None, problems
    assert ingestion.problems() == ()
    assert ingestion.copy(setup.spark, setup.checkpoint)

    (record,) = setup.kafka.read(topic)
    assert json.loads(record.key() or b"") == {"TableId": topic, "id": 1}
    assert json.loads(record.value() or b"") == {
        "before": None, "after": {"id": 1, "n": "a"}, "op": "c", "source": {"db": None, "table": topic},
    }  # fmt: skip
    assert PASSWORD not in ingestion.explain()
    assert "${secret_values.mysql.hostname}" in ingestion.explain()


@pytest.mark.mariadb
@pytest.mark.parametrize("written_out", [True, False])
def test_a_secret_is_in_no_error_and_no_file(
    setup: Setup, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, written_out: bool
) -> None:
    secret = "falsch-my-0815"
    monkeypatch.setenv("KDSL_TEST_WRONG", secret)
    end = MySqlSnapshot(
        hostname="127.0.0.1", port=mariadb.port, username=USER, tables=("a.b",), startup="snapshot",
        password=secret if written_out else "${env:KDSL_TEST_WRONG}",
        driver_properties={"trustCertificateKeyStorePassword": secret},
    )  # fmt: skip
    ingestion = Ingestion(end, Memory(), transform=[Transform("b", primary_keys=("id",))])
    with pytest.raises(KdslError, match="Access denied") as error:
        ingestion.copy(setup.spark, setup.checkpoint)

    files = [f.read_bytes() for f in Path(setup.checkpoint).rglob("*") if f.is_file()]
    shown = [
        str(error.value),
        repr(error.value.__context__),
        ingestion.explain(),
        repr(ingestion),
        repr(ingestion.plan()),
    ]
    assert not [text for text in shown if secret in text]
    assert not [data for data in files if secret.encode() in data]
