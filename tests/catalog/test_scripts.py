"""Catalogs in SQL scripts: their statements, names of three parts, hints, and tables whose columns are inferred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Cluster
from kdsl.catalog.stored import Inference, read_stored
from kdsl.ddl.load import load_sql
from kdsl.ddl.script_reader import parse_script, read_script
from kdsl.ddl.statements import CreateCatalog, Describe, DropCatalog, LikePattern, Show, Use
from kdsl.errors import Problem, ResolveError
from kdsl.run.checkpoint.folder import open_folder
from kdsl.scripts.planner import check_script, plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.scripts.script_plan import ScriptPlan
from kdsl.scripts.show import show_script
from kdsl.testing import LocalKafka, LocalRegistry, Record
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "CREATE CATALOG shop WITH ('type' = 'kafka', 'format' = 'json', 'properties.bootstrap.servers' = '{}');"
PLAIN = CATALOG.replace("'format'", "'value.fields-prefix' = '', 'format'")
PRINT = "CREATE TEMPORARY TABLE shown ({}) WITH ('connector' = 'print');"


def problems(text: str, *, inference: bool = False, cluster: Cluster | None = None) -> list[Problem]:
    return list(check_script(parse_script(text), cluster, inference=Inference() if inference else None)[1])


def codes(text: str, *, inference: bool = False) -> list[str]:
    return [f"{p.where.line}: {p.code}" for p in problems(text, inference=inference) if p.severity == "error"]


def plan_of(text: str) -> ScriptPlan:
    return plan_script(read_script(text), inference=Inference())


def first_columns(text: str) -> list[list[str | None]]:
    """The first column of what each statement shows."""
    return [[row[0] for row in one.rows] for one in plan_of(text).listings]


def run(spark: SparkSession, text: str, checkpoint: str | None = None, inference: Inference | None = None) -> None:
    plan = plan_script(read_script(text), checkpoint=checkpoint, inference=inference or Inference())
    run_script(plan, spark, RunOptions(once=True, checkpoint=checkpoint))


def read_printed_rows(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith(("+", "-")))


# -- reading the statements


def test_the_statements_are_read() -> None:
    script = read_script(
        """CREATE CATALOG IF NOT EXISTS shop COMMENT 'c' WITH ('type' = 'kafka');
        USE CATALOG shop; USE kafka; USE shop.kafka;
        SHOW CATALOGS; SHOW DATABASES IN shop; SHOW TABLES FROM shop.kafka NOT LIKE 'a\\_%'; SHOW TABLES ILIKE 'B%';
        DESCRIBE shop.kafka.orders; DESC EXTENDED orders;
        DROP CATALOG IF EXISTS shop"""
    )
    create, *uses, catalogs, databases, tables, others, described, desc, drop = script.statements

    assert isinstance(create, CreateCatalog)
    assert (create.name.last, create.comment, create.if_not_exists) == ("shop", "c", True)
    assert [(u.kind, str(u.name)) for u in uses if isinstance(u, Use)] == [
        ("CATALOG", "shop"),
        ("DATABASE", "kafka"),
        ("DATABASE", "shop.kafka"),
    ]
    assert isinstance(catalogs, Show)
    assert isinstance(databases, Show)
    assert isinstance(tables, Show)
    assert isinstance(others, Show)
    assert (catalogs.kind, databases.kind, str(databases.within)) == ("CATALOGS", "DATABASES", "shop")
    assert (str(tables.within), tables.like) == ("shop.kafka", LikePattern("a\\_%", negated=True))
    assert others.like == LikePattern("B%", ignore_case=True)
    assert isinstance(described, Describe)
    assert isinstance(desc, Describe)
    assert isinstance(drop, DropCatalog)
    assert drop.if_exists


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("%", "", True),
        ("a%", "abc", True),
        ("a_c", "abc", True),
        ("a_c", "ac", False),
        ("a\\_c", "abc", False),
        ("a\\_c", "a_c", True),
        ("a.c", "abc", False),
        ("A%", "abc", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert LikePattern(pattern).matches(name) is matches
    assert LikePattern(pattern, negated=True).matches(name) is not matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE CATALOG", "where the name of a catalog is expected"),
        ("CREATE CATALOG shop", "where WITH or COMMENT is expected"),
        ("USE CATALOG a.b", "where ';' is expected"),
        ("USE a.b.c", "the name a.b.c has 3 parts"),
        ("USE MODULES core", "kdsl has no USE MODULES statement"),
        ("SHOW TABELS", "where CATALOGS, DATABASES or TABLES is expected (did you mean 'TABLES'?)"),
        ("SHOW TABLES LIKE abc", "where a pattern in quotes is expected"),
        ("DROP CATALOG", "where the name of a catalog is expected"),
    ],
)
def test_mistakes_in_the_statements(text: str, message: str) -> None:
    (problem,) = parse_script(text).problems

    assert message in problem.message


# -- what is wrong with catalogs, without a broker


def test_options_of_a_catalog_are_checked_with_their_places() -> None:
    mistakes = problems(
        """CREATE CATALOG shop WITH ('type' = 'kafka', 'properties.bootstrap.servers' = 'a:1',
          'max.fetch.record' = '5',
          'infer-schema.primitive-as-string' = 'maybe',
          'aliyun.kafka.instanceId' = 'i-1',
          'key.fields-prefix' = 'v', 'value.fields-prefix' = 'v_');"""
    )

    assert [(p.where.line, p.code) for p in mistakes] == [
        (2, "option-unknown"),
        (3, "option-value"),
        (4, "catalog-cloud-api"),
        (5, "catalog-prefix"),
    ]
    assert "did you mean 'max.fetch.records'" in mistakes[0].message
    assert "remove it" in mistakes[2].fix


def test_what_catalogs_refuse() -> None:
    assert codes("CREATE CATALOG a WITH ('type' = 'kafak')") == ["1: catalog-type"]
    assert codes("CREATE CATALOG a WITH ('format' = 'json')") == ["1: catalog-type"]
    assert codes("CREATE CATALOG a WITH ('type' = 'kafka')") == ["1: cluster-missing"]
    text = CATALOG.format("a:1")
    assert codes(f"{text}\n{text}") == ["2: catalog-twice"]
    assert codes(f"{text}\n{text.replace('CATALOG', 'CATALOG IF NOT EXISTS')}") == []
    assert codes(f"{text}\nUSE CATALOG shop;\nDROP CATALOG shop;") == ["3: catalog-in-use"]
    assert codes(f"{text} USE CATALOG shop; USE CATALOG default_catalog; DROP CATALOG shop;") == []
    assert codes("USE CATALOG shop") == ["1: catalog-unknown"]
    assert codes("DROP CATALOG shop") == ["1: catalog-unknown"]
    assert codes("DROP CATALOG IF EXISTS shop") == []
    assert codes(f"{text} USE shop.shop") == ["1: database-unknown"]
    assert codes(f"{text} USE shop.kafka; USE kafka; USE default_catalog.default_database") == []
    assert codes(f"{text} SHOW TABLES IN shop.other; SHOW DATABASES IN shup") == [
        "1: database-unknown",
        "1: catalog-unknown",
    ]
    assert codes(f"{text}\nDROP TABLE shop.kafka.orders") == ["2: catalog-drop"]
    assert codes(f"{text}\nCREATE TABLE shop.kafka.orders (a INT) WITH ('connector' = 'print')") == [
        "2: catalog-create"
    ]
    assert codes("DESCRIBE nothing") == ["1: table-unknown"]


def test_the_names_of_the_script_s_own_tables() -> None:
    text = f"{CATALOG.format('a:1')} CREATE TABLE t (id INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');"

    for name in ("t", "vvp.`default`.t", "default_catalog.default_database.t"):
        assert codes(f"{text} SELECT id FROM {name}; DESCRIBE {name}") == []
    assert codes(f"{text}\nSELECT id FROM nowhere.kafka.t") == ["2: sql-query"]
    assert first_columns(f"{text} SHOW CATALOGS; SHOW DATABASES; SHOW TABLES; SHOW DATABASES IN shop") == [
        ["default_catalog", "shop"],
        ["default_database"],
        ["t"],
        ["kafka"],
    ]


def test_a_check_without_the_cluster_warns_of_what_it_cannot_check() -> None:
    text = f"""{CATALOG.format("a:1")}
        CREATE TABLE s (x STRING) WITH ('connector' = 'print');
        INSERT INTO s SELECT whatever FROM shop.kafka.orders;
        CREATE TABLE t WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'a:1',
          'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
        INSERT INTO s SELECT a FROM t;
        CREATE TABLE u (b AS UPPER(a)) LIKE t;
        INSERT INTO s SELECT b FROM u;"""

    mistakes = problems(text)

    assert [(p.where.line, p.code, p.severity) for p in mistakes] == [
        (3, "inferred-unchecked", "warning"),
        (4, "inferred-unchecked", "warning"),
        (7, "inferred-unchecked", "warning"),
    ]
    assert [table.name for table in load_sql(text)] == ["t", "u"]


def test_a_wrong_option_of_a_table_without_columns_is_one_problem() -> None:
    text = """CREATE TABLE t (b AS UPPER(a), WATERMARK FOR b AS b) WITH ('connector' = 'kafka', 'topic' = 't',
        'properties.bootstrap.servers' = 'a:1', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
        'json.infer-schema.fixed-types' = 'id BIGNIT');
        CREATE TABLE s (x STRING) WITH ('connector' = 'print'); INSERT INTO s SELECT a FROM t"""

    assert codes(text, inference=True) == ["3: option-value"]


@pytest.mark.parametrize("rules", ["", ", 'json.infer-schema.fixed-types' = 'id BIGNIT'"])
def test_columns_of_a_table_that_exists_already_are_not_inferred(rules: str) -> None:
    options = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'a:1', 'format' = 'json'"
    text = f"""CREATE TABLE t (a STRING) WITH ({options}, 'scan.startup.mode' = 'earliest-offset');
        CREATE TABLE IF NOT EXISTS t WITH ({options}{rules});
        CREATE TABLE s (x STRING) WITH ('connector' = 'print'); INSERT INTO s SELECT a FROM t"""

    assert problems(text) == []


@pytest.mark.parametrize(("include", "expected"), [("ALL", []), ("EXCEPT_KEY", ["inferred-unchecked"])])
def test_columns_of_the_key_are_columns_of_the_value_unless_it_excludes_them(include: str, expected: list[str]) -> None:
    text = f"""CREATE TABLE pairs (a STRING, b INT, PRIMARY KEY (a, b) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
        'topic' = 't', 'properties.bootstrap.servers' = 'a:1', 'key.format' = 'json', 'value.format' = 'json',
        'value.fields-include' = '{include}')"""

    assert [p.code for p in problems(text)] == expected


def test_describe_shows_what_flink_shows() -> None:
    plan = plan_of(
        """CREATE TABLE t (
          id INT NOT NULL COMMENT 'the id', part INT METADATA FROM 'partition' VIRTUAL, ts TIMESTAMP(3),
          big AS id + 1, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED
        ) WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'key.format' = 'json', 'value.format' = 'json',
          'properties.bootstrap.servers' = 'a:1');
        CREATE VIEW v AS SELECT id FROM t;
        DESCRIBE t; DESCRIBE v"""
    )
    of_table, of_view = plan.listings

    assert of_table.columns == ("name", "type", "null", "key", "extras", "watermark", "comment")
    assert of_table.rows == (
        ("id", "INT", "FALSE", "PRI(id)", None, None, "the id"),
        ("part", "INT", "TRUE", None, "METADATA FROM 'partition' VIRTUAL", None, None),
        ("ts", "TIMESTAMP(3)", "TRUE", None, None, "ts - INTERVAL '5' SECOND", None),
        ("big", "INT", "FALSE", None, "AS id + 1", None, None),
    )
    assert [row[:3] for row in of_view.rows] == [("id", "INT", "FALSE")]
    assert next(of_view.lines()).split() == ["name", "type", "null", "key", "extras", "watermark"]


# -- on Kafka


def test_a_catalog_in_a_script(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    orders, other = kdsl_topic("orders"), kdsl_topic("other")
    kdsl_kafka.produce(orders, '{"id": 1}', '{"id": 2, "note": "x"}')
    text = f"""
        {PLAIN.format(kdsl_kafka.bootstrap_servers)}
        {PRINT.format("id BIGINT, part INT, off BIGINT")}
        SHOW TABLES IN shop.kafka LIKE '{orders}';
        SHOW TABLES IN shop.kafka LIKE '{orders[:-1]}_';
        DESCRIBE shop.kafka.`{orders}`;
        INSERT INTO shown SELECT id, `partition`, `offset` FROM shop.kafka.`{orders}`
          /*+ OPTIONS('scan.startup.mode' = 'earliest-offset') */;
        INSERT INTO shown SELECT o.id, o.`partition`, `{orders}`.`offset` FROM shop.kafka.`{orders}` AS o
          JOIN shop.kafka.`{orders}` ON o.id = `{orders}`.id WHERE o.note IS NULL;
        USE CATALOG shop;
        SHOW TABLES LIKE '{other}';
        CREATE VIEW twice AS SELECT id * 2 AS id, `partition` AS part, `offset` AS off FROM `{orders}`;
        INSERT INTO shown SELECT * FROM twice;
        USE CATALOG default_catalog;
        INSERT INTO shown SELECT * FROM twice;
        DROP CATALOG shop;
        SHOW CATALOGS;
    """
    plan = plan_of(text)

    assert [[row[0] for row in one.rows] for one in plan.listings] == [
        [orders],
        [orders],
        ["partition", "offset", "timestamp", "id", "note"],
        [other],
        ["default_catalog"],
    ]
    assert plan.listings[2].rows[0] == (
        "partition", "INT", "FALSE", "PRI(partition, offset)", "METADATA VIRTUAL", None,
    )  # fmt: skip
    shown = show_script(plan)
    assert "from the newest 2 records of 1 partition:\n            id BIGINT, note STRING" in shown
    run(spark, text)
    assert read_printed_rows(capfd) == ["+I[1, 0, 0]"] * 2 + ["+I[2, 0, 0]"] * 2 + ["+I[2, 0, 1]"] + ["+I[4, 0, 1]"] * 2


def test_columns_have_the_prefix_of_the_value_unless_it_is_empty(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"id": 1}')
    text = f"{PRINT.format('id BIGINT')} INSERT INTO shown SELECT id FROM shop.kafka.`{topic}`;"
    prefixed, plain = (catalog.format(kdsl_kafka.bootstrap_servers) for catalog in (CATALOG, PLAIN))

    (mistake,) = problems(f"{prefixed} {text}", inference=True)

    assert "there is no column 'id'" in mistake.message
    assert "'value_id'" in mistake.fix
    assert problems(f"{plain} {text}", inference=True) == []


def test_a_hint_changes_options_and_a_catalog_s_table_can_be_written(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"id": 1}')
    text = f"""
        {PLAIN.format(kdsl_kafka.bootstrap_servers)}
        {PRINT.format("id BIGINT")}
        SET 'table.dml-sync' = 'true';
        INSERT INTO shop.kafka.`{topic}` VALUES (CAST(2 AS BIGINT)), (CAST(3 AS BIGINT));
        INSERT INTO shown SELECT id FROM shop.kafka.`{topic}`
          /*+ OPTIONS('scan.startup.mode' = 'specific-offsets',
                      'scan.startup.specific-offsets' = 'partition:0,offset:2') */;
    """

    run(spark, text)

    first, *written = [json.loads(r.value() or b"")["id"] for r in kdsl_kafka.read(topic)]
    assert (first, sorted(written)) == (1, [2, 3])  # two tasks may write the rows
    assert read_printed_rows(capfd) == [f"+I[{written[1]}]"]


def test_a_table_may_be_like_one_of_a_catalog(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"name": "a", "ts": "2023-01-01 12:00:01"}')
    text = f"""
        {CATALOG.format(kdsl_kafka.bootstrap_servers)}
        {PRINT.format("name STRING, ts STRING, h STRING")}
        CREATE TEMPORARY TABLE own (value_ts STRING, hour_of AS SUBSTRING(value_ts, 12, 2)) LIKE shop.kafka.`{topic}`;
        INSERT INTO shown SELECT value_name, value_ts, hour_of FROM own;
    """

    run(spark, text)

    assert read_printed_rows(capfd) == ["+I[a, 2023-01-01 12:00:01, 12]"]


def test_an_upsert_table_of_a_catalog_is_a_changelog(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kdsl_topic(config={"cleanup.policy": "compact"})
    kdsl_kafka.produce(topic, Record('{"n": 1}', key='{"id": 7}'), Record('{"n": 2}', key='{"id": 8}'))
    text = f"""
        {PLAIN.format(kdsl_kafka.bootstrap_servers)}
        {PRINT.format("id BIGINT, n BIGINT")}
        DESCRIBE shop.kafka.`{topic}`;
        INSERT INTO shown SELECT key_id, n FROM shop.kafka.`{topic}`;
    """

    run(spark, text)

    assert [row[3] for row in plan_of(text).listings[0].rows] == [None, None, None, "PRI(key_id)", None]
    assert read_printed_rows(capfd) == ["+I[7, 1]", "+I[8, 2]"]


def test_tables_of_subjects_in_a_script(
    kdsl_kafka: LocalKafka,
    kdsl_registry: LocalRegistry,
    kdsl_topic: MakeTopic,
    spark: SparkSession,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = kdsl_topic()
    text = f"""
        CREATE CATALOG shop WITH ('type' = 'kafka', 'properties.bootstrap.servers' = '{kdsl_kafka.bootstrap_servers}',
          'schema-registry.url' = '{kdsl_registry.url}');
        CREATE TABLE written (id BIGINT, name STRING) WITH ('connector' = 'kafka', 'topic' = '{topic}',
          'properties.bootstrap.servers' = '{kdsl_kafka.bootstrap_servers}', 'value.format' = 'json-schema-confluent',
          'value.json-schema-confluent.url' = '{kdsl_registry.url}');
        INSERT INTO written VALUES (CAST(1 AS BIGINT), 'a');"""
    run(spark, text)

    run(
        spark,
        f"{text.partition('CREATE TABLE')[0]} {PRINT.format('id BIGINT, name STRING')} "
        f"INSERT INTO shown SELECT value_id, value_name FROM shop.kafka.`{topic}`",
    )

    assert read_printed_rows(capfd) == ["+I[1, a]"]


def test_a_table_that_the_catalog_does_not_have(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    text = f"{CATALOG.format(kdsl_kafka.bootstrap_servers)}\nSELECT * FROM shop.kafka.`{topic}x`"

    mistakes = problems(text, inference=True)

    assert [(p.where.line, p.code) for p in mistakes] == [(2, "table-unknown")]
    assert f"did you mean '{topic}'" in mistakes[0].message


def test_a_copy_of_a_table_that_the_current_catalog_does_not_have(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    text = f"""{CATALOG.format(kdsl_kafka.bootstrap_servers)}
        CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '{tmp_path}');
        USE CATALOG shop;
        CREATE TABLE lake.db.t AS TABLE `{topic}x`"""

    assert codes(text, inference=True) == ["4: table-unknown"]


def test_a_topic_without_records_is_a_problem_at_the_table(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    text = f"{CATALOG.format(kdsl_kafka.bootstrap_servers)}\nSELECT value_a FROM shop.kafka.`{topic}`"

    mistakes = problems(text, inference=True)

    assert [(p.where.line, p.code) for p in mistakes] == [(2, "inference")]


# -- declared tables that leave columns out

PUBLISHED = Path(__file__).parents[1] / "ddl" / "data" / "000-example-2.sql"
"""The source table of a synchronization to a warehouse, as it is published, and the statement that fills the target."""


def test_a_table_without_columns_has_those_of_its_records(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(
        topic,
        Record('{"id": 101, "name": "VVP", "properties": {"owner": "Alibaba Cloud", "engine": "Flink"}}', partition=1),
        Record('{"id": 102, "properties": {"engine": null}, "day": "2024-05-01"}', partition=1),
    )
    table = PUBLISHED.read_text(encoding="utf-8").partition("CREATE TABLE IF NOT EXISTS")[0]
    table = table.replace("<yourKafkaBrokers>", kdsl_kafka.bootstrap_servers).replace("kafka_evolution_demo", topic)
    columns = "o INT, p BIGINT, id BIGINT, name STRING, owner STRING, engine STRING, d DATE"
    text = f"""{table} {PRINT.format(columns)} DESCRIBE kafkaTable;
        INSERT INTO shown SELECT * FROM vvp.`default`.kafkaTable;"""
    plan = plan_of(text)

    (described,) = plan.listings
    assert [row[:4] for row in described.rows] == [
        ("offset", "INT", "FALSE", "PRI(part, offset)"),
        ("part", "BIGINT", "FALSE", "PRI(part, offset)"),
        ("id", "BIGINT", "TRUE", None),
        ("name", "STRING", "TRUE", None),
        ("properties.owner", "STRING", "TRUE", None),
        ("properties.engine", "STRING", "TRUE", None),
        ("day", "DATE", "TRUE", None),
    ]
    assert "from the newest 2 records of 1 partition:" in show_script(plan)
    run(spark, text)
    assert read_printed_rows(capfd) == [
        "+I[0, 1, 101, VVP, Alibaba Cloud, Flink, null]",
        "+I[1, 1, 102, null, null, null, 2024-05-01]",
    ]


def test_declared_columns_stay_and_the_others_follow(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, Record('{"id": 5, "amount": 2.5, "note": 1}', key='{"k": 1}'))
    text = f"""
        CREATE TABLE s (
          key_k INT, val_note STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, twice AS val_amount * 2
        ) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'scan.startup.mode' = 'earliest-offset',
          'properties.bootstrap.servers' = '{kdsl_kafka.bootstrap_servers}', 'key.format' = 'json',
          'key.fields' = 'key_k', 'key.fields-prefix' = 'key_', 'value.fields-prefix' = 'val_',
          'value.fields-include' = 'EXCEPT_KEY', 'value.format' = 'json',
          'value.json.infer-schema.primitive-as-string' = 'false');
        {PRINT.format("a INT, b STRING, c DOUBLE, d BIGINT, e DOUBLE")}
        DESCRIBE s;
        INSERT INTO shown SELECT key_k, val_note, twice, val_id, val_amount FROM s;
    """

    (described,) = plan_of(text).listings
    run(spark, text)

    assert [(row[0], row[1]) for row in described.rows] == [
        ("key_k", "INT"),
        ("val_note", "STRING"),
        ("ts", "TIMESTAMP_LTZ(3)"),
        ("twice", "DOUBLE"),
        ("val_id", "BIGINT"),
        ("val_amount", "DOUBLE"),
    ]
    assert read_printed_rows(capfd) == ["+I[1, 1, 5.0, 5, 2.5]"]


def test_a_member_with_the_name_of_a_declared_column_is_reported(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"offset": 5, "a": 1}')
    text = f"""CREATE TABLE s (`offset` BIGINT METADATA) WITH ('connector' = 'kafka', 'topic' = '{topic}',
        'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
        'properties.bootstrap.servers' = '{kdsl_kafka.bootstrap_servers}'); SELECT * FROM s"""

    shown = show_script(plan_of(text))

    assert "the member 'offset' is not read: the table declares another column 'offset'" in shown


# -- with a checkpoint


def test_a_restart_has_the_columns_of_the_checkpoint(
    kdsl_kafka: LocalKafka,
    kdsl_topic: MakeTopic,
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic, checkpoint = kdsl_topic(), str(tmp_path)
    text = f"""
        {PLAIN.format(kdsl_kafka.bootstrap_servers)}
        {PRINT.format("off BIGINT, id BIGINT")}
        INSERT INTO shown SELECT `offset`, id FROM shop.kafka.`{topic}`;
    """
    kdsl_kafka.produce(topic, '{"id": 1}')
    run(spark, text, checkpoint)
    kdsl_kafka.produce(topic, '{"id": 2}', '{"id": 3, "more": true}')
    stored = read_stored(open_folder(spark, checkpoint))

    inference = Inference(stored, location=checkpoint)
    run(spark, text, checkpoint, inference)

    assert read_printed_rows(capfd) == ["+I[0, 1]", "+I[1, 2]", "+I[2, 3]"]
    (name,) = stored
    assert name == f"shop.kafka.{topic}"
    assert stored[name].schema.value.columns == (t.Field("id", t.BigInt()),)
    assert inference.inferred == stored
    changed = text.replace("'format'", "'infer-schema.primitive-as-string' = 'true', 'format'")
    with pytest.raises(ResolveError) as caught:
        plan_script(read_script(changed), inference=Inference(stored, location=checkpoint))
    assert "inferred for another declaration" in str(caught.value.problems)
    adopted = Inference(stored, adopt=True)
    plan_script(read_script(text), inference=adopted)
    assert adopted.inferred[name].schema.value.columns[-1] == t.Field("more", t.Boolean())
