"""The routing that is chosen by the keys of real topics, which real producers have written."""

from __future__ import annotations

import io
import json
import uuid
from typing import TYPE_CHECKING, Any

import attrs
import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from kdsl import AvroConfluent, Col, Json, JsonSchemaConfluent, PrimaryKey, ProtobufConfluent, UpsertTable
from kdsl.cluster import Cluster, Registry
from kdsl.errors import TopicMissingError
from kdsl.formats import Format, Use
from kdsl.plan.build import read_plan
from kdsl.plan.model import KeyPartitioner, ReadPlan
from kdsl.registry import RegisteredSchema
from kdsl.resolve import resolve
from kdsl.resolve.model import Start, StartMode
from kdsl.run.librdkafka import key_sample
from kdsl.run.librdkafka.key_sample import sample_choice, sample_keys
from kdsl.run.upsert.partitioned_keys import KeyPlacement
from kdsl.run.write import write
from kdsl.testing import LocalRegistry, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.write_plans import write_plan
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers, properties={"isolation.level": "read_committed"})


def users(topic: str, key: Format | None = None, *, start: StartMode = "earliest") -> ReadPlan:
    """The read of an upsert table, which may begin later, as one of change data."""

    class Users(UpsertTable, topic=topic, key=key or Json(), value=Json()):
        user_id: PrimaryKey[int]
        name: Col[str | None]

    return attrs.evolve(read_plan(resolve(Users.definition(), "read")), start=Start(start))


def json_key(user: int) -> bytes:
    return b'{"user_id":%d}' % user


def produce(kafka: RunningKafka, topic: str, keys: list[bytes], **settings: Any) -> None:
    """Write records with a producer of librdkafka."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    for key in keys:
        producer.produce(topic, key=key, value=b"{}")
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("setting", "partitioner"),
    [
        ("consistent", "crc32"),
        ("consistent_random", "crc32"),
        ("murmur2", "murmur2"),
        ("murmur2_random", "murmur2"),
        ("fnv1a", "fnv1a"),
        ("fnv1a_random", "fnv1a"),
    ],
)
def test_the_partitioner_of_a_producer_of_librdkafka_is_found(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, setting: str, partitioner: KeyPartitioner
) -> None:
    topic = kdsl_topic(partitions=PARTITIONS)
    produce(kdsl_kafka, topic, [json_key(user) for user in range(300)], partitioner=setting)

    choice = sample_choice(users(topic), cluster)

    assert (choice.routing, choice.partitioner, choice.partitions) == ("partition", partitioner, PARTITIONS)


def test_the_partitioner_of_javas_producer_is_found(
    spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=PARTITIONS)
    plan = write_plan({"name": "STRING"}, key={"user_id": "BIGINT"}, topics=(topic,), transport="jvm")
    write(spark.sql("SELECT id user_id, 'n' name FROM range(300)"), plan, cluster)

    choice = sample_choice(users(topic), cluster)

    assert (choice.routing, choice.partitioner) == ("partition", "murmur2")


def test_producers_with_different_partitioners_are_by_key(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=PARTITIONS)
    for number, setting in enumerate(["murmur2_random", "consistent_random"]):
        produce(kdsl_kafka, topic, [json_key(2 * user + number) for user in range(100)], partitioner=setting)

    choice = sample_choice(users(topic), cluster)

    assert choice.routing == "key"
    assert "in different ways" in choice.reason


def test_the_oldest_records_count_if_the_read_begins_with_them(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=PARTITIONS)
    old, new = (range(1_000, 1_040), range(2_000))
    produce(kdsl_kafka, topic, [json_key(user) for user in old], partitioner="consistent_random")
    produce(kdsl_kafka, topic, [json_key(user) for user in new], partitioner="murmur2_random")

    assert sample_choice(users(topic, start="earliest"), cluster).routing == "key"
    assert sample_choice(users(topic, start="latest"), cluster).partitioner == "murmur2"


def test_few_keys_and_empty_topics_do_not_tell(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=PARTITIONS)
    assert sample_choice(users(topic), cluster).reason == "the topic has no records yet"

    produce(kdsl_kafka, topic, [json_key(1), json_key(2)] * 100, partitioner="murmur2_random")

    choice = sample_choice(users(topic), cluster)
    assert (choice.routing, choice.reason.partition(" of ")[0]) == (None, "2 sampled keys")


def test_a_topic_with_one_partition_is_not_read(
    kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sample, "open_fetcher", None)

    choice = sample_choice(users(kdsl_topic()), cluster)

    assert (choice.routing, choice.partitioner) == ("partition", "single")


def test_a_missing_topic_is_an_error(cluster: Cluster) -> None:
    with pytest.raises(TopicMissingError):
        sample_choice(users("nowhere"), cluster)


def test_records_without_a_key_are_by_key_and_tombstones_are_keys(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": kdsl_kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for user in range(100):
        producer.produce(topic, key=json_key(user), value=None)
    assert producer.flush(60) == 0
    assert sample_choice(users(topic), cluster).partitioner == "murmur2"

    kdsl_kafka.produce(topic, Record(b"{}", partition=2))

    assert sample_choice(users(topic), cluster).reason.endswith("has no key")


def test_aborted_transactions_at_the_end_are_skipped(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=2)
    produce(kdsl_kafka, topic, [json_key(user) for user in range(200)], partitioner="murmur2_random")
    producer = Producer(
        {"bootstrap.servers": kdsl_kafka.bootstrap_servers, "transactional.id": f"aborts-{uuid.uuid4().hex}"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for user in range(500):
        producer.produce(topic, key=json_key(user), value=b"{}", partition=user % 2)
    producer.flush(60)
    producer.abort_transaction(60)
    settle(kdsl_kafka, topic)

    plan = users(topic, start="latest")
    sample = sample_keys(plan, cluster)

    assert sample_choice(plan, cluster).partitioner == "murmur2"
    assert len(sample.keys) == 200


def test_the_sample_ends_when_it_is_large_enough(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kdsl_topic(partitions=2)
    produce(kdsl_kafka, topic, [json_key(user) for user in range(3_000)], partitioner="murmur2_random")
    plan = users(topic, start="latest")

    assert len(sample_keys(plan, cluster).keys) == 2 * (16 + 32 + 64 + 128)
    monkeypatch.setattr(key_sample, "BYTES", 50)
    assert len(sample_keys(plan, cluster).keys) == 2 * 16


class TestRegistry:
    """Keys with the id of their schema in a registry, which are hashed with it."""

    @pytest.fixture
    def cluster(self, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry) -> Cluster:
        return Cluster(kdsl_kafka.bootstrap_servers, registry=Registry(kdsl_registry.url, {"max.retries": 0}))

    def avro_keys(self, registry: LocalRegistry, topic: str, kind: Any, name: str = "Key") -> list[bytes]:
        """Keys as Debezium writes them: with a schema of its own."""
        schema = {"type": "record", "name": name, "namespace": "shop", "fields": [{"name": "user_id", "type": kind}]}
        number = registry.client().register(f"{topic}-key", RegisteredSchema(json.dumps(schema)))
        parsed = fastavro.parse_schema(schema)
        keys = []
        for user in range(300):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, {"user_id": user})
            keys.append(b"\0" + number.to_bytes(4, "big") + out.getvalue())
        return keys

    @pytest.mark.parametrize(
        "kind",
        ["int", "long", ["null", "int"], {"type": "int", "connect.type": "int16"}],
        ids=["int", "long", "nullable", "of-connect"],
    )
    def test_avro_keys_are_written_again_with_the_schema_that_they_name(
        self, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic, cluster: Cluster, kind: Any
    ) -> None:
        topic = kdsl_topic("avro-keys", partitions=PARTITIONS)
        keys = self.avro_keys(kdsl_registry, topic, kind)
        produce(kdsl_kafka, topic, keys, partitioner="murmur2_random")
        plan = users(topic, AvroConfluent())

        choice = sample_choice(plan, cluster)

        assert (choice.routing, choice.partitioner, choice.key_form) == ("partition", "murmur2", keys[0][:5].hex())
        placement = KeyPlacement(plan, PARTITIONS, "murmur2", choice.key_form, cluster.registry)
        rows = pa.record_batch({"user_id": pa.array(range(300), pa.int64())})
        assert sum(placement.belong(rows, partition).sum() for partition in range(PARTITIONS)) == 300

    def test_two_schemas_of_keys_are_by_key(
        self, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic("avro-keys", partitions=PARTITIONS)
        keys = [
            *self.avro_keys(kdsl_registry, topic, "int")[:150],
            *self.avro_keys(kdsl_registry, topic, "long")[150:],
        ]
        produce(kdsl_kafka, topic, keys, partitioner="murmur2_random")

        assert sample_choice(users(topic, AvroConfluent()), cluster).routing == "key"

    def test_a_schema_with_fields_that_the_table_lacks_is_by_key(
        self, kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic("avro-keys", partitions=PARTITIONS)
        fields = [{"name": name, "type": "int"} for name in ("user_id", "shop")]
        schema = {"type": "record", "name": "Key", "fields": fields}
        number = kdsl_registry.client().register(f"{topic}-key", RegisteredSchema(json.dumps(schema)))
        keys = [b"\0" + number.to_bytes(4, "big") + bytes([2 * user, 2]) for user in range(60)]
        produce(kdsl_kafka, topic, keys, partitioner="murmur2_random")

        choice = sample_choice(users(topic, AvroConfluent()), cluster)

        assert choice.routing == "key"
        assert choice.reason.startswith("the bytes of keys cannot be computed from their columns: ")
        assert "cannot hold the rows of the table" in choice.reason

    @pytest.mark.parametrize("name", ["json", "protobuf"])
    def test_keys_of_other_formats_are_written_again_with_their_schema(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_registry: LocalRegistry,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        name: str,
    ) -> None:
        topic = kdsl_topic(f"{name}-keys", partitions=PARTITIONS)
        source = 'syntax = "proto3"; message Other { } message Key { int64 user_id = 1; }'
        writer: Format = JsonSchemaConfluent()
        if name == "protobuf":
            kdsl_registry.client().register(f"{topic}-key", RegisteredSchema(source, "PROTOBUF"))
            writer = ProtobufConfluent(message_class_name="Key", use_latest_version=True)
        plan = users(topic, JsonSchemaConfluent() if name == "json" else ProtobufConfluent())
        assert plan.key is not None
        rows = pa.array([{"user_id": user} for user in range(300)], pa.struct([pa.field("user_id", pa.int64(), False)]))
        use = Use(side="key", topics=(topic,), registry=cluster.registry)
        keys = writer.encoder(plan.key.row, use).encode(rows).messages.to_pylist()
        produce(kdsl_kafka, topic, keys, partitioner="consistent_random")

        choice = sample_choice(plan, cluster)

        assert (choice.routing, choice.partitioner) == ("partition", "crc32")
        assert bytes.fromhex(choice.key_form)[0] == 0
        assert keys[7].startswith(bytes.fromhex(choice.key_form))
