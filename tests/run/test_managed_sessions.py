"""Sessions that do not allow settings to be changed, classic ones and Spark Connect: they read, write and upsert."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable, Virtual, virtual
from kdsl.run.session import SessionError
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.connect import ConnectServer
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVAILABLE_NOW = {"availableNow": True}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def strings(topic: str, **more: Any) -> Any:
    """A table whose messages are strings."""

    class Strings(KafkaTable, topic=topic, value="raw", startup="earliest", **more):
        text: Col[str]
        offset: Virtual[int] = virtual("offset")

    return Strings


def values(kafka: RunningKafka, *topics: str) -> Counter[str]:
    """The values of committed records, and how often each is there."""
    for topic in topics:
        settle(kafka, topic)
    return Counter((record.value() or b"").decode() for topic in topics for record in kafka.read(topic))


class Copy:
    """A stream from one topic to another, which is stopped and started again on its checkpoint."""

    def __init__(self, source: Any, sink: Any, cluster: Cluster, folder: Path) -> None:
        self.source, self.sink, self.cluster, self.checkpoint = source, sink, cluster, folder / "checkpoint"

    def run(self, spark: SparkSession) -> None:
        """Copy what is there now."""
        rows = self.source.read_stream(spark, self.cluster).select("text")
        query = self.sink.write_stream(rows, self.cluster, checkpoint=str(self.checkpoint), trigger=AVAILABLE_NOW)
        assert query.awaitTermination(300)


def words_of(topic: str) -> Any:
    """An upsert table."""

    class Words(UpsertTable, topic=topic, key=Json(), value=Json()):
        word: PrimaryKey[str]
        count: Col[int]

    return Words


CONNECT = """
from kdsl import Cluster
from tests.run.test_managed_sessions import AVAILABLE_NOW, strings, words_of

servers, source, sink, words, folder = sys.argv[1:]
cluster = Cluster(servers)
print("batch", sorted(row.text for row in strings(source).read(spark, cluster).collect()))
for _ in range(2):
    rows = strings(source).read_stream(spark, cluster).select("text")
    query = strings(sink).write_stream(rows, cluster, checkpoint=folder + "/copy", trigger=AVAILABLE_NOW)
    query.awaitTermination()
table = words_of(words)
table.write(spark.createDataFrame([("good", 1), ("good", 2)], "word string, count long").coalesce(1), cluster)
print("upserts", [tuple(row) for row in table.read(spark, cluster).collect()])
changes = table.read_stream(spark, cluster).writeStream.format("memory").queryName("changes")
changes = changes.option("checkpointLocation", folder + "/changes").trigger(**AVAILABLE_NOW).start()
changes.awaitTermination()
print("changes", [tuple(row) for row in spark.table("changes").collect()])
spark.stop()
"""
CHANGES = [("+I", "good", 1), ("-U", "good", 1), ("+U", "good", 2)]
REFUSE = """
from pyspark.errors import PySparkException
from pyspark.sql.connect.conf import RuntimeConf

def refuse(self, *arguments):
    raise PySparkException("the configuration of this server is locked")

if {locked}:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass",
                   "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    RuntimeConf.set = RuntimeConf.unset = refuse
"""


class TestConnect:
    """Spark Connect: a batch, a stream and an upsert table."""

    @pytest.mark.parametrize("locked", [False, True])
    def test_it_reads_writes_and_upserts(
        self,
        connect: ConnectServer,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        *,
        locked: bool,
    ) -> None:
        source, sink, words = kdsl_topic("in", partitions=2), kdsl_topic("out"), kdsl_topic("words")
        kdsl_kafka.produce(source, *"abc")

        printed = connect.run(
            REFUSE.format(locked=locked) + CONNECT,
            *(kdsl_kafka.bootstrap_servers, source, sink, words, str(tmp_path)),
            folder=tmp_path,
        )

        assert printed.splitlines()[-3:] == [
            "batch ['a', 'b', 'c']",
            f"upserts {CHANGES}",
            f"changes {CHANGES}",
        ]
        assert values(kdsl_kafka, sink) == Counter("abc")


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def refuse_settings(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session refuse every change of a setting, with the error of a managed one."""
    from pyspark.errors import AnalysisException

    def refuse(self: Any, name: str, *value: Any) -> None:
        raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")

    for name in ("set", "unset"):
        monkeypatch.setattr(type(session.conf), name, refuse)


class TestManagedSession:
    """A session that does not allow settings to be changed."""

    @pytest.fixture
    def managed(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
        """A session that refuses every change of a setting."""
        session = spark.newSession()
        refuse_settings(session, monkeypatch)
        return session

    def test_it_reads_writes_and_copies_a_stream(
        self, managed: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        strings(source).write(managed.createDataFrame([("a",), ("b",)], "text string"), cluster)
        assert sorted(row.text for row in strings(source).read(managed, cluster).collect()) == ["a", "b"]

        Copy(strings(source), strings(sink), cluster, tmp_path).run(managed)
        assert values(kdsl_kafka, sink) == Counter("ab")

    def test_a_setting_that_is_needed_is_named_with_the_line_to_add(
        self, managed: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        table = words_of(kdsl_topic())
        with pytest.raises(SessionError) as raised:
            table.read_stream(managed, cluster)
        assert str(raised.value) == (
            f"the state of upsert tables needs the setting {PROVIDER}={ROCKSDB}, which this session does not allow to "
            f"be changed; add the line\n    {PROVIDER} {ROCKSDB}\nto the Spark configuration with which the session, "
            "its cluster or its Connect server is started"
        )

    def test_an_exactly_once_stream_names_its_line(
        self, managed: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("in"), kdsl_topic("out")
        once = strings(sink, delivery="exactly-once", transactional_id_prefix=sink)
        with pytest.raises(SessionError, match=r"\n    spark\.sql\.adaptive\.enabled false\n"):
            Copy(strings(source), once, cluster, tmp_path).run(managed)

    def test_a_session_that_was_started_with_the_lines_upserts_and_writes_exactly_once(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        session = spark.newSession()
        session.conf.set(PROVIDER, ROCKSDB)
        session.conf.set("spark.sql.adaptive.enabled", "false")

        source, sink, words = kdsl_topic("in"), kdsl_topic("out"), words_of(kdsl_topic("words"))
        kdsl_kafka.produce(source, *"ab")
        refuse_settings(session, monkeypatch)
        once = strings(sink, delivery="exactly-once", transactional_id_prefix=sink)
        Copy(strings(source), once, cluster, tmp_path).run(session)
        assert values(kdsl_kafka, sink) == Counter("ab")

        words.write(session.createDataFrame([("good", 1)], "word string, count long"), cluster)
        query = words.read_stream(session, cluster).writeStream.format("memory").queryName("managed")
        query = query.option("checkpointLocation", str(tmp_path / "words")).trigger(**AVAILABLE_NOW).start()
        assert query.awaitTermination(300)
        assert [row.word for row in session.table("managed").collect()] == ["good"]
