"""The options of ``format("kdsl")`` that people write, without Spark and without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.cluster import Cluster
from kdsl.data_source.options import _Request, read_source_options, write_source_options
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.librdkafka.options import read_options
from kdsl.run.librdkafka.read_task import WHOLE
from kdsl.types import model as t
from kdsl.types.spark import spark_schema

TABLES = "tests.data_source.shop_tables"
SERVERS = {"bootstrap.servers": "broker:9092"}
DDL = "CREATE TABLE o (a INT, b AS a + 1) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json')"
YAML = """\
tables:
  - name: orders
    options: {connector: kafka, topic: orders, format: json}
    columns: [{name: order_id, type: BIGINT}]
  - name: others
    options: {connector: kafka, topic: others, format: json}
    columns: [{name: id, type: INT}]
"""


def read(**options: str) -> tuple[ReadPlan, Cluster]:
    return read_options(read_source_options(options), ReadPlan)


def error_of(options: dict[str, str]) -> str:
    with pytest.raises(KdslError) as caught:
        read_source_options(options)
    return str(caught.value)


def test_a_table_is_named_by_its_module_and_its_cluster_by_kafkas_own_keys() -> None:
    plan, cluster = read(table=f"{TABLES}:Orders", **SERVERS, **{"client.id": "me"})

    assert (plan.table, plan.topics.names, plan.columns.names) == ("Orders", ("orders",), ("order_id", "amount"))
    assert (cluster.bootstrap_servers, dict(cluster.properties)["client.id"]) == ("broker:9092", "me")


def test_a_cluster_can_be_named_like_a_table_and_options_override_its_settings() -> None:
    _, cluster = read(table=f"{TABLES}:Orders", cluster=f"{TABLES}:shop")
    _, other = read(table=f"{TABLES}:Orders", cluster=f"{TABLES}:shop", **{"client.id": "me"})

    assert (cluster.bootstrap_servers, dict(cluster.properties)["client.id"]) == ("broker:9092", "shop")
    assert (other.bootstrap_servers, dict(other.properties)["client.id"]) == ("broker:9092", "me")


def test_brokers_of_the_options_replace_those_of_the_cluster() -> None:
    _, cluster = read(table=f"{TABLES}:Orders", cluster=f"{TABLES}:shop", **{"bootstrap.servers": "other:1"})

    assert (cluster.bootstrap_servers, dict(cluster.properties)) == ("other:1", {"client.id": "shop"})


def test_a_file_and_sql_declare_tables(tmp_path: Path) -> None:
    file = tmp_path / "tables.yaml"
    file.write_text(YAML, encoding="utf-8")

    assert read(file=f"{file}#others", **SERVERS)[0].topics.names == ("others",)
    assert read(ddl=DDL, columns="a", **SERVERS)[0].columns.names == ("a",)


def test_options_of_the_connector_override_those_of_the_table() -> None:
    plan, _ = read(table=f"{TABLES}:Orders", **SERVERS, **{"scan.startup.mode": "latest-offset", "topic": "other"})

    assert (plan.start.mode, plan.topics.names) == ("latest", ("other",))


def test_settings_by_name_are_added_to_those_of_the_table() -> None:
    declared = DDL.replace(
        "'topic' = 't'",
        "'topic' = 't', 'scan.dead-letter.topic' = 'd', 'scan.dead-letter.properties.client.id' = 'letters', "
        "'scan.dead-letter.properties.bootstrap.servers' = 'a:1', 'topic.config.retention.ms' = '1'",
    )
    request = _Request(
        {
            "ddl": declared,
            "topic.config.cleanup.policy": "compact",
            "scan.dead-letter.properties.bootstrap.servers": "b:1",
            "dew.csms.secretName": "shop",
        }
    )

    assert request.problems == []
    assert request._definition is not None
    options = request._definition.options
    assert dict(options.dead_letter_properties) == {"client.id": "letters", "bootstrap.servers": "b:1"}
    assert dict(options.topic_configs) == {"retention.ms": "1", "cleanup.policy": "compact"}
    assert options.to_strings()["dew.csms.secretName"] == "shop"


def test_letter_case_of_names_does_not_matter() -> None:
    assert read(**{"TABLE": f"{TABLES}:Orders", "Bootstrap.Servers": "h:1"})[1].bootstrap_servers == "h:1"


def test_all_problems_of_the_options_and_of_the_table_are_reported_at_once() -> None:
    text = error_of(
        {
            "ddl": DDL.replace("'t'", "''"),
            "kafka.bootstrap.servers": "h:1",
            "colums": "a",
            "scan.startup.mode": "first",
        }
    )

    assert text.startswith("o has 5 problems:")
    assert "there is no option 'kafka.bootstrap.servers'; write 'bootstrap.servers', as Kafka calls it" in text
    assert "there is no option 'colums' (did you mean 'columns'?)" in text
    assert "does not say where its brokers are; write bootstrap.servers = 'host:port'" in text
    assert "'scan.startup.mode' has the value 'first'" in text
    assert "'topic'" in text


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({}, "the options name no table; write table = 'shop.tables:Orders', file = "),
        ({"table": "a:b", "ddl": DDL}, "the options name the table by 'table' and 'ddl'"),
        ({"table": f"{TABLES}:Order"}, f"'{TABLES}' has no table 'Order' (did you mean 'Orders'?)"),
        ({"table": "no.such.module:Orders"}, "there is no module or file 'no.such.module'"),
        ({"ddl": DDL}, "'b' is computed by Spark after the read, which a data source cannot do; name the other"),
        ({"ddl": DDL, "columns": "a,c"}, "o has no column 'c'"),
        ({"table": f"{TABLES}:Users"}, "write scan.changelog.mode = 'upsert'"),
        ({"table": f"{TABLES}:Orders", "transport": "jvm"}, "the transport 'jvm' is Spark's own Kafka connector"),
        ({"table": f"{TABLES}:Orders", "cluster": f"{TABLES}:shoop"}, "has no cluster 'shoop' (did you mean 'shop'?)"),
        ({"table": f"{TABLES}:Orders", "cluster": "shop"}, "'shop'; write cluster = 'shop.tables:shop' or 'clusters"),
        ({"table": f"{TABLES}:Orders", "bootstrap.servers": " "}, "'bootstrap.servers' contains no broker"),
        ({"table": f"{TABLES}:Orders", "columns": ","}, "'columns' names no column; write their names, separated by"),
        ({"ddl": DDL, "columns": "a", "format": "csv"}, "'format' is a part of the table's declaration"),
        ({"ddl": DDL, "columns": "a", "key.json.map-null-key.mode": "x"}, "set it in the declaration"),
    ],
)
def test_an_error_says_what_to_write(options: dict[str, str], part: str) -> None:
    assert part in error_of({**SERVERS, **options})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"ssl.keystore.key": "HUSH"}, ["ssl.keystore.key"]),
        ({"scan.dead-letter.properties.ssl.keystore.key": "HUSH"}, ["scan.dead-letter.properties.ssl.keystore.key"]),
        ({"ddl": DDL.replace("'t'", "'t', 'properties.ssl.keystore.key' = 'HUSH'")}, ["ssl.keystore.key"]),
        ({"ssl.keystore.key": "${env:KEY}", "ssl.truststore.certificates": "public", "sasl.password": "HUSH"}, []),
        ({"ddl": DDL.replace("'t'", "'t', 'properties.sasl.password' = 'HUSH'")}, []),
    ],
)
def test_a_literal_secret_that_spark_would_show_is_refused(options: dict[str, str], names: list[str]) -> None:
    request = _Request({"ddl": DDL, **SERVERS, **options})

    assert [p.message for p in request.problems] == [
        f"Spark would show the secret {name!r} in plans, because it is a literal" for name in names
    ]
    assert "HUSH" not in str(request.problems)


def test_upserts_are_rows_of_single_records() -> None:
    plan, _ = read(table=f"{TABLES}:Users", **SERVERS, **{"scan.changelog.mode": "upsert"})

    assert plan.upserts is not None
    assert (plan.upserts.by_record, plan.columns.names) == (True, ("_row_kind", "user_id", "name"))


def test_options_that_an_operation_of_a_table_made_stay_as_they_are() -> None:
    written = read_source_options({"table": f"{TABLES}:Orders", **SERVERS})

    assert read_source_options(written) == written


def test_a_task_reads_whole_partitions_because_the_write_is_not_known() -> None:
    assert read_source_options({"table": f"{TABLES}:Orders", **SERVERS})[WHOLE] == "true"


def test_a_write_reports_its_options_and_its_columns_at_once() -> None:
    schema = spark_schema(t.Row((t.Field("order_id", t.BigInt()), t.Field("amont", t.Double())), nullable=False))
    options = {"table": f"{TABLES}:Orders", **SERVERS, "sink.delivery-guarantee": "exactly-once", "columns": "amount"}

    with pytest.raises(KdslError) as caught:
        write_source_options({**options, "sink.transactional-id-prefix": "orders"}, schema)

    text = str(caught.value)
    assert "'columns' chooses the columns of a read; select the columns of the DataFrame instead" in text
    assert "an exactly-once write needs the query's checkpoint, which Spark does not tell a data source" in text
    assert "the DataFrame has no column 'amount' (DOUBLE) (did you mean 'amont'?)" in text


def test_what_sparks_catalog_adds_means_nothing() -> None:
    written = {"table": f"{TABLES}:Orders", **SERVERS}
    added = {"path": "/warehouse/orders", "provider": "kdsl", "owner": "me", "external": "true", "comment": "Orders"}

    assert read(**written, path="/warehouse/orders")[0].table == "Orders"
    assert read(**written, **added, **{f"option.{name}": text for name, text in written.items()}) == read(**written)


def test_what_only_a_catalog_adds_is_an_error_of_other_reads() -> None:
    text = error_of({"table": f"{TABLES}:Orders", **SERVERS, "owner": "me", "option.table": "x"})

    assert "there is no option 'owner'" in text
    assert "there is no option 'option.table'" in text
    assert "there is no option 'option.tabel'" in error_of({**SERVERS, "provider": "kdsl", "option.tabel": "a:b"})
