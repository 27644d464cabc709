"""Tables over a real broker and a real registry, through Spark: schemas that change, outages, logins."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession

from kdsl import (
    ROW_KIND,
    AvroConfluent,
    Cluster,
    Col,
    DebeziumAvroConfluent,
    KafkaTable,
    Key,
    Registry,
    Virtual,
    virtual,
)
from kdsl.diagnostics.peek import last_records
from kdsl.errors import KdslError, ResolveError
from kdsl.registry import RegisteredSchema
from kdsl.table import Table
from kdsl.testing import LocalRegistry, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.registry.front import Front, forward

VERSIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"id": "int", "name": "string"}, {"id": 1, "name": "one"}),
    ({"name": ["null", "string"], "id": "long"}, {"id": 2, "name": "two"}),
    ({"id": "long", "name": ["null", "string"], "more": "double"}, {"id": 3, "name": None, "more": 0.5}),
    ({"note": ["null", "string"], "id": "long"}, {"id": 4, "note": "four"}),
]
ROWS = [(1, "one", None), (2, "two", None), (3, None, None), (4, None, "four")]


def write_message(version: dict[str, Any], value: dict[str, Any], registry: LocalRegistry, subject: str) -> bytes:
    """A message as another program writes it."""
    fields = [
        {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
        for name, kind in version.items()
    ]
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    number = registry.client().register(subject, RegisteredSchema(json.dumps(schema)))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def orders(topic: str, value: Any = None, **options: Any) -> Table:
    class Orders(KafkaTable, topic=topic, value=value or AvroConfluent(), startup="earliest", **options):
        id: Col[int]
        name: Col[str | None]
        note: Col[str | None]

    return Table(Orders.definition())


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers, registry=Registry(kdsl_registry.url, {"max.retries": 0}))


def stream_rows(
    spark: SparkSession, read: Callable[[], DataFrame], name: str, checkpoint: Path
) -> list[tuple[Any, ...]]:
    query = (
        read()
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return sorted(tuple(row) for row in spark.table(name).collect())


class TestSchemasThatChange:
    @pytest.fixture
    def topic(self, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic) -> str:
        topic = kdsl_topic("versions")
        # Four programs, each with its own schema under its own subject, take turns.
        messages = [
            write_message(version, value, kdsl_registry, f"{topic}-{number}")
            for number, (version, value) in enumerate(VERSIONS)
        ]
        kdsl_kafka.produce(topic, *messages, None, *reversed(messages))
        return topic

    def test_a_batch_reads_each_record_with_the_schema_that_it_was_written_with(
        self, spark: SparkSession, cluster: Cluster, topic: str
    ) -> None:
        rows = [tuple(row) for row in orders(topic).read(spark, cluster).collect()]

        assert rows == [*ROWS, *reversed(ROWS)]

    def test_the_id_of_the_schema_can_be_read(
        self, spark: SparkSession, cluster: Cluster, kdsl_registry: LocalRegistry, topic: str
    ) -> None:
        class Orders(KafkaTable, topic=topic, value=AvroConfluent(), startup="earliest"):
            id: Col[int]
            schema_id: Virtual[int | None] = virtual("value.schema-id")

        rows = Orders.read(spark, cluster).collect()

        ids = [kdsl_registry.client().latest(f"{topic}-{row.id - 1}").id for row in rows]
        assert [row.schema_id for row in rows] == ids

    def test_so_does_a_stream(self, spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path) -> None:
        rows = stream_rows(spark, lambda: orders(topic).read_stream(spark, cluster), "versions", tmp_path)

        assert rows == sorted([*ROWS, *ROWS])

    def test_some_columns_are_read_alone(self, spark: SparkSession, cluster: Cluster, topic: str) -> None:
        rows = orders(topic).read(spark, cluster, columns=["note"]).collect()

        assert [row.note for row in rows] == [None, None, None, "four", "four", None, None, None]

    def test_the_last_records_are_shown_without_spark(self, cluster: Cluster, topic: str) -> None:
        records = last_records(orders(topic).read_plan(), cluster, 2)

        assert records.column("id").to_pylist() == [2, 1]

    def test_existing_records_are_decoded(
        self, spark: SparkSession, cluster: Cluster, topic: str, kdsl_kafka: RunningKafka
    ) -> None:
        raw = spark.createDataFrame([(m.value(),) for m in kdsl_kafka.read(topic)], "value binary")

        assert [row.id for row in orders(topic).decode(raw, cluster.registry).collect()] == [1, 2, 3, 4, 4, 3, 2, 1]

    def test_a_secret_that_is_written_out_is_not_sent_with_a_function(self, spark: SparkSession) -> None:
        raw = spark.createDataFrame([(b"",)], "value binary")
        registry = Registry("http://r", {"basic-auth.user-info": "me:HUSH"})
        with pytest.raises(KdslError) as caught:
            orders("t").decode(raw, registry)

        assert "write a reference that each process resolves" in repr(caught.value.exceptions)  # type: ignore[attr-defined]
        assert "HUSH" not in repr(caught.value)

    def test_a_record_that_cannot_be_read_is_named(
        self, spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic("unknown-id")
        kdsl_kafka.produce(topic, None, b"\0\0\0\xff\xff\2\2a")

        with pytest.raises(Exception, match="has no schema with the id 65535") as caught:
            orders(topic).read(spark, cluster).collect()
        assert "offset 1" in str(caught.value)


class TestWriting:
    def test_schemas_are_registered_under_subjects_named_after_the_topic(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_registry: LocalRegistry,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        name = kdsl_topic("written")

        class Keyed(KafkaTable, topic=name, key=AvroConfluent(), value=AvroConfluent(), startup="earliest"):
            id: Key[int]
            name: Col[str | None]

        rows = Keyed.rows([Keyed(id=1, name="one"), Keyed(id=2, name=None)], spark=spark)
        Keyed.write(rows, cluster)
        query = Keyed.write_stream(
            Keyed.read_stream(spark, cluster), cluster, checkpoint=str(tmp_path), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)

        assert sorted(tuple(r) for r in Keyed.read(spark, cluster).collect()) == [(1, "one")] * 2 + [(2, None)] * 2
        client = kdsl_registry.client()
        assert json.loads(client.latest(f"{name}-key").schema.text)["fields"] == [{"name": "id", "type": "long"}]
        assert client.versions(f"{name}-value") == (1,)

    def test_the_other_transport_asks_the_registry_too(
        self, spark: SparkSession, cluster: Cluster, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic("jvm")
        table = orders(topic, transport="jvm")
        df = spark.createDataFrame([(1, "x", None)], table.schema())

        table.write(df, cluster)

        assert [tuple(row) for row in table.read(spark, cluster).collect()] == [(1, "x", None)]
        assert kdsl_registry.client().versions(f"{topic}-value") == (1,)
        open_secret = Cluster(
            cluster.bootstrap_servers, registry=Registry(kdsl_registry.url, {"basic-auth.user-info": "me:HUSH"})
        )
        for run in (lambda: table.read(spark, open_secret), lambda: table.write(df, open_secret)):
            with pytest.raises(ResolveError) as caught:
                run()
            assert "secret 'basic-auth.user-info' is a literal" in str(caught.value.exceptions)
            assert "HUSH" not in str(caught.value.exceptions)

    def test_an_exactly_once_query_writes_with_a_registry(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source, sink = orders(kdsl_topic("once-in")), kdsl_topic("once-out")
        source.write(spark.createDataFrame([(1, "x", None)], source.schema()), cluster)
        table = orders(sink, delivery="exactly-once", transactional_id_prefix=sink, exactly_once="staged")
        query = table.write_stream(
            source.read_stream(spark, cluster), cluster, checkpoint=str(tmp_path), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)

        assert [tuple(row) for row in table.read(spark, cluster).collect()] == [(1, "x", None)]

    def test_an_unregistered_schema_is_reported(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic
    ) -> None:
        table = orders(kdsl_topic("strict"), AvroConfluent(auto_register=False))
        df = spark.createDataFrame([(1, None, None)], table.schema())

        with pytest.raises(KdslError, match="does not have this schema under the subject 'strict"):
            table.write(df, cluster)

    def test_rows_are_written_with_the_latest_schema_of_the_subject(
        self, spark: SparkSession, cluster: Cluster, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic("latest")
        table = orders(topic, AvroConfluent(use_latest_version=True))
        fields = ", ".join(f'{{"name":"{n}","type":["null","string"],"default":null}}' for n in ("name", "note"))
        text = f'{{"type":"record","name":"shop.Order","fields":[{{"name":"id","type":"long"}},{fields}]}}'
        number = kdsl_registry.client().register(f"{topic}-value", RegisteredSchema(text))

        table.write(spark.createDataFrame([(7, "x", None)], table.schema()), cluster)

        (row,) = table.encode(spark.createDataFrame([(7, "x", None)], table.schema()), cluster.registry).collect()
        assert row.value[:5] == b"\0" + number.to_bytes(4, "big")
        assert [tuple(r) for r in table.read(spark, cluster).collect()] == [(7, "x", None)]

    def test_changes_are_written_and_read(self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic) -> None:
        table = orders(kdsl_topic("changes"), DebeziumAvroConfluent())
        changes = [("+I", 1, "a", None), ("-U", 1, "a", None), ("+U", 1, "b", None), ("-D", 1, "b", None)]
        df = spark.createDataFrame(changes, f"{ROW_KIND} string, id long, name string, note string").coalesce(1)

        table.write(df, cluster)

        rows = [tuple(row) for row in table.read(spark, cluster).collect()]
        assert rows == [("+I", 1, "a", None), ("-D", 1, "a", None), ("+I", 1, "b", None), ("-D", 1, "b", None)]


class TestOutages:
    def test_a_stream_continues_with_known_ids(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_registry: LocalRegistry,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        """The registry is gone, and the process reads on; a new id is an error that names the registry."""
        topic = kdsl_topic("outage")
        message = write_message(*VERSIONS[1], kdsl_registry, f"{topic}-1")
        new = write_message(*VERSIONS[2], kdsl_registry, f"{topic}-2")
        kdsl_kafka.produce(topic, message)
        with Front(forward(kdsl_registry.url)) as front:
            cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=Registry(front.url, {"max.retries": 0}))
            table = orders(topic)
            plan = table.read_plan()

            assert last_records(plan, cluster, 9).column("id").to_pylist() == [2]
            asked = front.count("/schemas/ids/")
            front.fail = [(503, {})] * 99
            kdsl_kafka.produce(topic, message)
            assert last_records(plan, cluster, 9).column("id").to_pylist() == [2, 2]
            assert front.count("/schemas/ids/") == asked == 1
            kdsl_kafka.produce(topic, new)
            with pytest.raises(
                KdslError, match=rf"the registry {front.url} does not answer, asked once for the schema"
            ):
                last_records(plan, cluster, 9)
            front.fail = []
            assert last_records(plan, cluster, 9).column("id").to_pylist() == [2, 2, 3]

    def test_spark_asks_once_for_each_id_and_worker(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic("asked", partitions=4)
        message = write_message(*VERSIONS[1], kdsl_registry, f"{topic}-1")
        kdsl_kafka.produce(topic, *(Record(message, partition=i % 4) for i in range(400)))
        with Front(forward(kdsl_registry.url)) as front:
            cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=front.url)
            df = orders(topic).read(spark, cluster)
            for _ in range(3):
                assert df.count() == 400

            assert 1 <= front.count("/schemas/ids/") <= 4  # workers that Spark has, at most one request each

    def test_a_login_reaches_the_tasks_without_being_shown(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic("login")

        def allows(request: Any) -> int:
            return 200 if request.headers.get("Authorization") == "Basic bWU6SFVTSA==" else 401

        with Front(forward(kdsl_registry.url, allows)) as front:
            own = orders(topic, AvroConfluent(url=front.url, basic_auth_user_info="me:HUSH"))
            shared = orders(topic)
            jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="HUSH";'
            cluster = Cluster(
                kdsl_kafka.bootstrap_servers, registry=Registry(front.url, {"basic-auth.user-info": "me:HUSH"})
            )
            plain = Cluster(kdsl_kafka.bootstrap_servers)
            df = spark.createDataFrame([(1, "x", None)], own.schema())

            own.write(df, plain)
            shared.write(df, cluster)
            assert [r.id for r in own.read(spark, plain).collect()] == [1, 1]
            assert [r.id for r in shared.read(spark, cluster).collect()] == [1, 1]
            inherited = AvroConfluent(url=front.url, basic_auth_credentials_source="SASL_INHERIT")
            assert inherited.registry(Registry("", {"sasl.jaas.config": jaas})) == Registry(
                front.url,
                {"sasl.jaas.config": jaas, "basic-auth.credentials-source": "SASL_INHERIT"},
            )
            with pytest.raises(Exception, match="HTTP 401"):
                orders(topic, AvroConfluent(url=front.url)).read(spark, plain).collect()
