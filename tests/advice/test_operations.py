"""What problems of operations on tables advise: reads, the data source, pipelines, catalogs, documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import kdsl
from kdsl import Checkpoint, Cluster, DebeziumJson, Json, KafkaTable, UpsertTable
from kdsl.catalog.kafka import define_table
from kdsl.catalog.options import CatalogOptions
from kdsl.catalog.stored import Inference, StoredSchema
from kdsl.catalog.topic_schema import SideSchema, TopicSchema
from kdsl.data_source.options import _read_problems, _Request, write_problems
from kdsl.ddl.script_reader import read_script
from kdsl.declare.config import ColumnConfig, TableConfig
from kdsl.errors import Problem
from kdsl.pipelines import _change_plan, _check_columns
from kdsl.plan.change_columns import add_commit_columns
from kdsl.plan.plan_table import plan_read
from kdsl.resolve import problems
from kdsl.run.arrow.clients import client_problems
from kdsl.run.arrow.computed_columns import ComputedColumns
from kdsl.run.arrow.read import _prepare
from kdsl.scripts.planner import check_script
from kdsl.types import model as t
from tests.advice.cases import CLUSTER, Called, Shown, check_advice

OPTIONS: dict[str, Any] = {"connector": "kafka", "topic": "t", "format": "json", "properties.group.id": "g"}
ORDERS = "tests.data_source.shop_tables:Orders"
USERS = "tests.data_source.shop_tables:Users"
SERVERS = {"bootstrap.servers": "broker:9092"}
INSERTS = "CREATE TABLE o (a INT, b AS a + 1) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json'{})"
CHANGES = "CREATE TABLE c (id INT{}) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'debezium-json'{})"
KEYED = CHANGES.format(", PRIMARY KEY (id) NOT ENFORCED", "{}")
UPSERTS = (
    "CREATE TABLE u ({}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 't', "
    "'key.format' = 'json', 'value.format' = 'json'{})"
)
LETTERS = ", 'scan.dead-letter.topic' = 'd', 'scan.dead-letter.max-count' = '{}'"
ONCE = ", 'sink.delivery-guarantee' = '{}', 'sink.transactional-id-prefix' = 'p'"


def read(**options: str) -> Callable[[], object]:
    def find() -> list[Problem]:
        request = _Request({**SERVERS, **options})
        plan = request.plan(lambda table, cluster: table.read_plan(request.columns, cluster))
        return [*request.problems, *(() if plan is None else _read_problems(plan))]

    chosen = "".join(f".option({name!r}, {value!r})" for name, value in options.items())
    return Shown(find, f'spark.readStream.format("kdsl"){chosen}.load()')


def write(ddl: str) -> Callable[[], object]:
    return Shown(lambda: write_problems(kdsl.sql(ddl).write_plan(CLUSTER)), ddl, "sql")


def follow_changes(
    table: type[KafkaTable | UpsertTable], columns: list[str] | None = None, by: str = "_commit_version"
) -> Callable[[], object]:
    return Shown(
        lambda: _check_columns(_change_plan(table.as_table(), CLUSTER, columns, None), by),
        f"auto_cdc({table.__name__}, cluster, columns={columns}, sequence_by={by!r})",
    )


def declare(**column: Any) -> Callable[[], object]:
    options: dict[str, Any] = {"name": "a", "type": "INT"} | column
    config = TableConfig(name="t", columns=[ColumnConfig(**options)], options=OPTIONS)
    text = "columns:\n  - " + "\n    ".join(f"{name}: {json.dumps(value)}" for name, value in options.items())
    return Shown(lambda: list(problems(config.definition(), "read")), text, "yaml")


def configure(**options: str) -> Callable[[], object]:
    chosen = {**OPTIONS, **options}
    config = TableConfig(name="t", columns=[ColumnConfig(name="a", type="INT")], options=chosen)
    text = "options:\n" + "\n".join(f"  {name}: {value}" for name, value in chosen.items())
    return Shown(lambda: list(problems(config.definition(), "read")), text, "yaml")


def infer(**options: Any) -> Callable[[], object]:
    schema = TopicSchema(SideSchema(Json(), (t.Field("offset", t.Int()),)))
    return lambda: define_table("orders", schema, CatalogOptions(format="json", **options))


def plan(text: str, cluster: Cluster | None = None) -> Callable[[], object]:
    return Shown(lambda: list(check_script(read_script(text), cluster)[1]), text, "sql")


class Inserted(KafkaTable, topic="t", value=Json(), startup="earliest-offset"):
    id: int


class Changed(KafkaTable, topic="t", value=DebeziumJson(), startup="earliest-offset"):
    id: int


class ChangedByKey(KafkaTable, topic="t", value=DebeziumJson(), startup="earliest-offset", primary_key=["id"]):
    id: int
    name: str | None


class Upserted(UpsertTable, topic="t", key=Json(), value=Json()):
    id: kdsl.PrimaryKey[int]


def infer_again(columns: str = "") -> Callable[[], list[Problem]]:
    """A script whose checkpoint has the columns of another declaration of its table."""
    options = "'connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
    schema = TopicSchema(SideSchema(Json(), (t.Field("id", t.Int()),)))
    stored = {"o": StoredSchema({"topic": "other"}, schema)}

    def find() -> list[Problem]:
        inference = Inference(stored, location="/c")
        return list(
            check_script(read_script(f"CREATE TABLE o {columns} WITH ({options})"), CLUSTER, inference=inference)[1]
        )

    return find


def read_here(call: Callable[[], object], **arguments: object) -> Shown:
    """A call of what `Table.to_arrow` does before it asks a broker."""
    text = "".join(f", {name}={value}" for name, value in arguments.items())
    return Shown(call, f"Orders.to_arrow(cluster{text})")


def compute(expression: str) -> Shown:
    definition = kdsl.sql(INSERTS.replace("a + 1", expression).format("")).definition
    call = lambda: ComputedColumns(plan_read(definition, CLUSTER), definition)  # noqa: E731
    return Shown(call, f"CREATE TABLE o (a INT, b AS {expression}) WITH (…)", "sql")


KERBEROS = Cluster("broker:9092", properties={"security.providers": "com.example.Provider"})
CASES = [
    # reads without Spark
    Called(
        "checkpoint-needs-spark",
        read_here(
            lambda: _prepare(plan_read(Inserted.definition(), CLUSTER, start_at=Checkpoint("/c")), CLUSTER),
            start_at="Checkpoint('/c')",
        ),
        "write start_at='group-offsets', a time or offsets",
        read_here(
            lambda: _prepare(plan_read(Inserted.definition(), CLUSTER, start_at="earliest-offset"), CLUSTER),
            start_at="'earliest-offset'",
        ),
    ),
    Called(
        "client-needs-java",
        read_here(lambda: client_problems(KERBEROS, "read")),
        "read with Spark",
        Shown(lambda: list(KERBEROS.problems("jvm")), "Orders.read(spark, cluster)"),
    ),
    Called("computed-needs-spark", compute("upper(CAST(a AS STRING))"), "leave it out", compute("a + 1")),
    # reads
    Called(
        "upsert-start",
        lambda: plan_read(Upserted.definition(), CLUSTER, start_at="earliest-offset"),
        "remove it",
        lambda: plan_read(Upserted.definition(), CLUSTER),
    ),
    Called(
        "upsert-start",
        lambda: plan_read(Upserted.definition(), CLUSTER, start_at="earliest-offset"),
        "read the topic with a KafkaTable",
        lambda: plan_read(Inserted.definition(), CLUSTER, start_at="earliest-offset"),
    ),
    Called(
        "startup-checkpoint",
        lambda: plan_read(Inserted.definition(), CLUSTER, start_at=Checkpoint("/c", rewind="2 parsecs")),
        "rewind='2 hours'",
        lambda: plan_read(Inserted.definition(), CLUSTER, start_at=Checkpoint("/c", rewind="2 hours")),
    ),
    Called(
        "change-columns",
        lambda: add_commit_columns(plan_read(Inserted.definition(), CLUSTER)),
        "remove change_columns=True",
        lambda: plan_read(Inserted.definition(), CLUSTER),
    ),
    Called(
        "change-columns",
        lambda: add_commit_columns(plan_read(Inserted.definition(), CLUSTER)),
        "declare a table of changes",
        lambda: add_commit_columns(plan_read(Changed.definition(), CLUSTER)),
    ),
    Called(
        "change-columns-images",
        lambda: add_commit_columns(plan_read(Upserted.definition(), CLUSTER)),
        "'scan.changelog.mode'",
        lambda: add_commit_columns(
            kdsl.sql(UPSERTS.format("id INT", ", 'scan.changelog.mode' = 'upsert'")).read_plan(cluster=CLUSTER)
        ),
    ),
    Called(
        "change-columns-taken",
        lambda: add_commit_columns(kdsl.sql(CHANGES.format(", _change_type INT", "")).read_plan(cluster=CLUSTER)),
        "other names",
        lambda: add_commit_columns(kdsl.sql(CHANGES.format(", kind INT", "")).read_plan(cluster=CLUSTER)),
    ),
    Called(
        "change-columns-taken",
        lambda: add_commit_columns(kdsl.sql(CHANGES.format(", _change_type INT", "")).read_plan(cluster=CLUSTER)),
        "'value.fields-prefix'",
        lambda: add_commit_columns(
            kdsl.sql(
                CHANGES.format(", v__change_type INT", ", 'value.fields-prefix' = 'v_'").replace("(id", "(v_id")
            ).read_plan(cluster=CLUSTER)
        ),
    ),
    Called(
        "cluster-missing",
        lambda: Inserted.as_table().cluster(None),
        "pass a Cluster('host:port')",
        lambda: Inserted.as_table().cluster(Cluster("host:9092")),
    ),
    Called(
        "cluster-missing",
        plan("CREATE CATALOG h WITH ('type' = 'kafka')"),
        "set 'properties.bootstrap.servers'",
        plan("CREATE CATALOG h WITH ('type' = 'kafka', 'properties.bootstrap.servers' = 'b:9092')"),
    ),
    Called(
        "cluster-missing",
        plan(INSERTS.format("") + "; SELECT a FROM o"),
        "or run it with --bootstrap",
        plan(INSERTS.format("") + "; SELECT a FROM o", CLUSTER),
    ),
    Called(
        "connector-script",
        configure(connector="print"),
        "run the file with `kdsl run`",
        plan("CREATE TABLE p (id INT) WITH ('connector' = 'print')"),
    ),
    Called("connector-script", configure(connector="print"), "has the connector 'kafka'", configure(connector="kafka")),
    Called(
        "inferred-unchecked",
        plan("CREATE TABLE o WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json')", CLUSTER),
        "or declare the columns",
        plan(INSERTS.format(""), CLUSTER),
    ),
    Called("inference", infer_again(), "or declare the columns with CREATE TABLE", infer_again("(id INT)")),
    # the data source
    Called(
        "data-source-computed",
        read(ddl=INSERTS.format("")),
        "name the other columns in the option 'columns'",
        read(ddl=INSERTS.format(""), columns="a"),
    ),
    Called(
        "data-source-computed",
        read(ddl=INSERTS.format("")),
        "or use Table.read",
        lambda: kdsl.sql(INSERTS.format("")).read_plan(cluster=CLUSTER),
    ),
    Called(
        "data-source-images",
        read(table=USERS),
        "write scan.changelog.mode = 'upsert'",
        read(table=USERS, **{"scan.changelog.mode": "upsert"}),
    ),
    Called(
        "data-source-letters",
        read(ddl=INSERTS.format(LETTERS.format(5)), columns="a"),
        "write scan.dead-letter.max-count = '-1'",
        read(ddl=INSERTS.format(LETTERS.format(5)), columns="a", **{"scan.dead-letter.max-count": "-1"}),
    ),
    Called(
        "data-source-transport",
        read(table=ORDERS, transport="jvm"),
        "transport = 'librdkafka'",
        read(table=ORDERS, transport="librdkafka"),
    ),
    Called(
        "data-source-exactly-once",
        write(INSERTS.format(ONCE.format("exactly-once"))),
        "'at-least-once'",
        write(INSERTS.format(ONCE.format("at-least-once"))),
    ),
    Called("data-source-option", read(), "write table = 'shop.tables:Orders'", read(table=ORDERS)),
    Called("data-source-option", read(table=ORDERS, ddl=INSERTS.format("")), "write table = ", read(table=ORDERS)),
    Called("data-source-option", read(table=ORDERS + "s"), "", read(table=ORDERS)),
    Called("data-source-option", read(table=ORDERS, columns=" "), "or leave the option out", read(table=ORDERS)),
    Called(
        "data-source-option",
        read(table=ORDERS, columns="order"),
        "correct the option 'columns'",
        read(table=ORDERS, columns="order_id"),
    ),
    Called(
        "data-source-option",
        read(table=ORDERS, cluster="tests.data_source.shop_tables:shopp"),
        "write cluster = ",
        read(table=ORDERS, cluster="tests.data_source.shop_tables:shop"),
    ),
    Called(
        "data-source-option",
        read(table=ORDERS, **{"kafka.client.id": "c"}),
        "write 'client.id'",
        read(table=ORDERS, **{"client.id": "c"}),
    ),
    Called(
        "data-source-option",
        read(table=ORDERS, **{"json.ignore-parse-errors": "true"}),
        "set it in the declaration",
        read(ddl=INSERTS.format(", 'json.ignore-parse-errors' = 'true'"), columns="a"),
    ),
    Called(
        "data-source-option", read(table=ORDERS, topics="t"), "a key of the connector", read(table=ORDERS, topic="t")
    ),
    Called(
        "data-source-option",
        read(table=ORDERS, **{"sasl.jaas.config": "a b c;"}),
        "${file:PATH}",
        read(table=ORDERS, **{"sasl.jaas.config": "${file:/jaas}"}),
    ),
    # pipelines
    Called("auto-cdc", follow_changes(Inserted), "declare an UpsertTable", follow_changes(Upserted)),
    Called("auto-cdc", follow_changes(Changed), "primary_key=[…]", follow_changes(ChangedByKey)),
    Called(
        "auto-cdc-key",
        follow_changes(ChangedByKey, ["name"]),
        "add all columns of the primary key",
        follow_changes(ChangedByKey, ["name", "id"]),
    ),
    Called(
        "auto-cdc-sequence",
        follow_changes(ChangedByKey, by="version"),
        "'_commit_version'",
        follow_changes(ChangedByKey),
    ),
    # catalogs and documents
    Called("catalog-column", infer(value_prefix=""), "value_prefix=", infer(value_prefix="v_")),
    Called(
        "column-role",
        declare(computed="1", metadata="offset"),
        "remove 'computed'",
        declare(type="BIGINT", metadata="offset"),
    ),
    Called("column-virtual", declare(virtual=True), "remove 'virtual'", declare()),
    Called(
        "column-virtual",
        declare(virtual=True, name="offset", type="BIGINT"),
        "or add 'metadata'",
        declare(virtual=True, name="offset", type="BIGINT", metadata=True),
    ),
    Called("type-syntax", declare(type="INTT"), "write a type in SQL", declare(type="INT")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_the_advice_for_an_operation_works(case: Called) -> None:
    check_advice(case)
