"""The table of Kafka client settings: what each of Java's names means to librdkafka.

Users write the names of Java's consumer, producer and admin client (Kafka 4.1). The transport ``jvm`` hands them on;
the transport ``librdkafka`` gets them through `kdsl.client_settings.to_librdkafka`, which reads this table. A row says
what differs: a name, a unit, a range, a default, or that there is no counterpart. docs/client-settings.md is generated
from the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kdsl.client_settings.model import MAX_INT, Client, LibrdkafkaProperty, Setting, number, rows, switch, words
from kdsl.client_settings.security_settings import SECURITY

_MEMBER = "kdsl assigns partitions itself, so that no consumer of it is a member of the group"
_METRICS = "it steers the metrics of Java's clients; kdsl's come from librdkafka's statistics"
_BYTES = "kdsl moves bytes; the formats of the table read and write them"
_FORMAT = "remove it; the table names its formats"
_SIZED = "kdsl sizes it from what is to be read unless it is given"
_SYSTEM = "-1 becomes 0, the system's size, which holds too when it is not given"


def _bytes_of_system(n: int) -> int:
    """Return 0, which lets the system choose, for a negative number; other numbers unchanged."""
    return max(n, 0)


def _convert_to_kilobytes(n: int) -> int:
    """Convert bytes to kilobytes, rounded up."""
    return -(-n // 1024)


CLIENTS: tuple[Setting, ...] = (
    words("bootstrap.servers", "cpa", note="entries of host:port; a protocol before one (`PLAINTEXT://`) is left out"),
    words(
        "client.id",
        "cpa",
        note="for consumers and producers, the prefix of the id unless client.id.prefix is set; kdsl adds a part that "
        "makes each id unique",
    ),
    words("client.dns.lookup", "cpa", "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    words("client.rack", "c"),
    number(
        "request.timeout.ms",
        "cpa",
        LibrdkafkaProperty("socket.timeout.ms", 10, 300_000),
        LibrdkafkaProperty("request.timeout.ms", 1, 900_000, clients="p"),
        default="30000",
        note="librdkafka's default of socket.timeout.ms is 60000",
    ),
    number(
        "retries",
        "pa",
        LibrdkafkaProperty("retries", 0, MAX_INT, clients="p"),
        java=(0, MAX_INT),
        note="librdkafka's admin client has none",
    ),
    number("retry.backoff.ms", "cpa", LibrdkafkaProperty("retry.backoff.ms", 1, 300_000)),
    number("retry.backoff.max.ms", "cpa", LibrdkafkaProperty("retry.backoff.max.ms", 1, 300_000)),
    number(
        "reconnect.backoff.ms",
        "cpa",
        LibrdkafkaProperty("reconnect.backoff.ms", 0, 3_600_000),
        default="50",
        note="librdkafka's default is 100",
    ),
    number(
        "reconnect.backoff.max.ms",
        "cpa",
        LibrdkafkaProperty("reconnect.backoff.max.ms", 0, 3_600_000),
        default="1000",
        note="librdkafka's default is 10000; not given, it is at least reconnect.backoff.ms",
    ),
    number(
        "send.buffer.bytes",
        "cpa",
        LibrdkafkaProperty("socket.send.buffer.bytes", 0, 100_000_000, _bytes_of_system),
        java=(-1, None),
        note=_SYSTEM,
    ),
    number(
        "receive.buffer.bytes",
        "cpa",
        LibrdkafkaProperty("socket.receive.buffer.bytes", 0, 100_000_000, _bytes_of_system),
        java=(-1, None),
        note=_SYSTEM,
    ),
    number(
        "connections.max.idle.ms",
        "cpa",
        LibrdkafkaProperty("connections.max.idle.ms", 0, MAX_INT, _bytes_of_system),
        java=(None, None),
        default={"cp": "540000", "a": "300000"},
        note="a negative value becomes 0, never, which is librdkafka's default",
    ),
    number(
        "metadata.max.age.ms",
        "cpa",
        LibrdkafkaProperty("topic.metadata.refresh.interval.ms", 1, 3_600_000),
        note="librdkafka's own metadata.max.age.ms is another thing, the age at which its cache forgets",
    ),
    words("metadata.recovery.strategy", "cpa", "rebootstrap", "none"),
    number(
        "metadata.recovery.rebootstrap.trigger.ms",
        "cpa",
        LibrdkafkaProperty("metadata.recovery.rebootstrap.trigger.ms", 0, MAX_INT),
    ),
    switch("enable.metrics.push", "cpa", {"a": "false"}, "librdkafka's default is true for the admin client too"),
    number(
        "socket.connection.setup.timeout.ms",
        "cpa",
        LibrdkafkaProperty("socket.connection.setup.timeout.ms", 1000, MAX_INT),
        java=(None, None),
        note="in librdkafka it covers the TLS and SASL handshakes too; its default of 30000 stays",
    ),
    *rows(
        "dropped",
        "cpa",
        "socket.connection.setup.timeout.max.ms",
        "librdkafka's timeout does not grow from one attempt to the next",
    ),
    *rows(
        "dropped",
        "cpa",
        "metric.reporters auto.include.jmx.reporter metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms",
        _METRICS,
    ),
    *rows(
        "connector",
        "ca",
        "default.api.timeout.ms",
        "bounds each of kdsl's own calls to the cluster; 60000",
        "int",
        java=(0, None),
    ),
    *rows(
        "owned",
        "cp",
        "interceptor.classes",
        "an interceptor would change records outside of the plan",
        "list",
        instead="remove it; transform the DataFrame",
    ),
    *rows(
        "owned",
        "a",
        "bootstrap.controllers",
        "kdsl talks to brokers",
        "list",
        instead="remove it; give the brokers as bootstrap.servers",
    ),
    *rows(
        "owned",
        "cpa",
        "config.providers",
        "kdsl resolves references itself",
        "list",
        instead="remove it; write ${env:NAME}, ${file:PATH}, ${file:PATH:KEY} or ${secret_values.NAME}",
    ),
)

CONSUMER: tuple[Setting, ...] = (
    words("group.id", "c", note="a table without one has the group `KafkaSource-<table>`"),
    words(
        "isolation.level",
        "c",
        "read_uncommitted",
        "read_committed",
        default="read_uncommitted",
        note="librdkafka's default is read_committed; that of a table with exactly-once delivery, too",
    ),
    switch(
        "allow.auto.create.topics",
        "c",
        "true",
        "librdkafka's default is false; for a sink, false makes kdsl look for the topic first",
    ),
    switch("check.crcs", "c", "true", "librdkafka's default is false"),
    number("fetch.min.bytes", "c", LibrdkafkaProperty("fetch.min.bytes", 1, 100_000_000)),
    number("fetch.max.bytes", "c", LibrdkafkaProperty("fetch.max.bytes", 1000, 2_147_483_135), note=_SIZED),
    number("fetch.max.wait.ms", "c", LibrdkafkaProperty("fetch.wait.max.ms", 0, 300_000)),
    number(
        "max.partition.fetch.bytes", "c", LibrdkafkaProperty("max.partition.fetch.bytes", 1, 1_000_000_000), note=_SIZED
    ),
    *rows(
        "connector",
        "c",
        "enable.auto.commit",
        "kdsl commits the group's offsets itself, when a micro-batch of a stream has ended; where this is true at most "
        "every auto.commit.interval.ms. A batch read commits nothing; false",
        "bool",
    ),
    *rows(
        "connector",
        "c",
        "auto.commit.interval.ms",
        "how often kdsl commits at most, where enable.auto.commit is true; 5000",
        "int",
        java=(0, None),
    ),
    *rows(
        "connector",
        "c",
        "auto.offset.reset",
        "kdsl's answer to a missing or expired offset; none, an error, where it is not given; the client gets `error`",
        values="earliest latest none",
    ),
    *rows(
        "connector",
        "c",
        "exclude.internal.topics",
        "whether a topic pattern leaves out internal topics; true",
        "bool",
    ),
    *rows(
        "dropped",
        "c",
        "group.instance.id group.protocol group.remote.assignor partition.assignment.strategy session.timeout.ms "
        "heartbeat.interval.ms max.poll.interval.ms internal.leave.group.on.close",
        _MEMBER,
    ),
    *rows("dropped", "c", "max.poll.records", "kdsl reads Arrow batches, bounded by records and by bytes"),
    *rows(
        "dropped",
        "c",
        "share.acknowledgement.mode internal.throw.on.fetch.stable.offset.unsupported",
        "it means nothing to a consumer with assigned partitions",
    ),
    *rows("owned", "c", "key.deserializer value.deserializer", _BYTES, "class", instead=_FORMAT),
)

PRODUCER: tuple[Setting, ...] = (
    words("acks", "p", "all", "-1", "0", "1", note="anything but all switches idempotence off, as in Java"),
    switch("enable.idempotence", "p", "true", "librdkafka's default is false"),
    number(
        "max.in.flight.requests.per.connection",
        "p",
        LibrdkafkaProperty("max.in.flight.requests.per.connection", 1, 1_000_000),
        java=(1, None),
        default="5",
        note="librdkafka's default is 1000000; without idempotence kdsl's is 1, so that a retry keeps the order",
    ),
    number("linger.ms", "p", LibrdkafkaProperty("linger.ms", 0, 900_000)),
    number(
        "batch.size", "p", LibrdkafkaProperty("batch.size", 1, MAX_INT), note="not given, it is librdkafka's 1000000"
    ),
    number(
        "buffer.memory",
        "p",
        LibrdkafkaProperty("queue.buffering.max.kbytes", 1, MAX_INT, _convert_to_kilobytes),
        note="bytes become kilobytes; kdsl sizes it unless it is given",
    ),
    number(
        "max.request.size",
        "p",
        LibrdkafkaProperty("message.max.bytes", 1000, 1_000_000_000),
        default="1048576",
        note="librdkafka's default is 1000000",
    ),
    number(
        "delivery.timeout.ms",
        "p",
        LibrdkafkaProperty("delivery.timeout.ms", 0, MAX_INT),
        default="120000",
        note="librdkafka's default is 300000; not given, it is at least linger.ms + request.timeout.ms",
    ),
    number(
        "max.block.ms",
        "p",
        LibrdkafkaProperty("topic.metadata.propagation.max.ms", 0, 3_600_000),
        default="60000",
        note="librdkafka's default is 30000; it also bounds how long kdsl waits for room in the queue",
    ),
    words("compression.type", "p", "none", "gzip", "snappy", "lz4", "zstd"),
    *rows(
        "derived",
        "p",
        "compression.gzip.level compression.lz4.level compression.zstd.level",
        "`compression.level`, where compression.type is this codec; at most 12; not given, it is librdkafka's choice",
        "int",
    ),
    number(
        "transaction.timeout.ms",
        "p",
        LibrdkafkaProperty("transaction.timeout.ms", 1000, MAX_INT),
        java=(None, None),
        note="not given, kdsl takes the lesser of an hour and the broker's maximum",
    ),
    *rows(
        "derived",
        "p",
        "partitioner.ignore.keys",
        "true becomes `partitioner=random`; else it is `murmur2_random`, Java's hash of the key",
        "bool",
    ),
    *rows(
        "dropped",
        "p",
        "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
        "librdkafka's sticky partitioner does not look at the brokers' load",
    ),
    *rows("dropped", "p", "metadata.max.idle.ms", "librdkafka keeps what it knows of a topic that it has written to"),
    *rows(
        "owned",
        "p",
        "partitioner.class",
        "it names a Java class",
        "class",
        instead="remove it; the sink has an option for its partitioner (sink.partitioner)",
    ),
    *rows(
        "owned",
        "p",
        "transactional.id transaction.two.phase.commit.enable",
        "kdsl names and ends its transactions itself",
        instead="remove it; ask for exactly-once delivery with a transactional id prefix "
        "(sink.delivery-guarantee, sink.transactional-id-prefix)",
    ),
    *rows("owned", "p", "key.serializer value.serializer", _BYTES, "class", instead=_FORMAT),
)

CONNECTOR: tuple[Setting, ...] = (
    *rows("connector", "cpa", "client.id.prefix", "begins the client id of every client; the ids are unique"),
    *rows(
        "connector",
        "c",
        "partition.discovery.interval.ms",
        "how often new partitions are looked for; 300000; 0 or less is never",
        "int",
    ),
    *rows(
        "connector",
        "c",
        "commit.offsets.on.checkpoint",
        "whether the group's offsets are committed when a micro-batch has ended; true",
        "bool",
    ),
    *rows("connector", "c", "register.consumer.metrics", "whether to collect the clients' own metrics; true", "bool"),
    *rows("connector", "p", "register.producer.metrics", "whether to collect the clients' own metrics; true", "bool"),
    *rows("connector", "cpa", "connector.auth.open", "changes nothing: security.protocol decides", "bool"),
    *rows(
        "connector",
        "cpa",
        "connector.kerberos.principal connector.kerberos.keytab connector.kerberos.krb5",
        "the Kerberos login, for Java's clients only",
    ),
    *rows(
        "connector",
        "cpa",
        "security.kerberos.login.principal security.kerberos.login.keytab security.kerberos.login.contexts",
        "Flink's Kerberos login, for Java's clients only; it counts where the contexts name KafkaClient",
    ),
    *rows(
        "connector",
        "cpa",
        "security.kerberos.login.use-ticket-cache",
        "whether a ticket of kinit will do where no keytab is given; true",
        "bool",
    ),
)

TABLE: Mapping[str, Setting] = MappingProxyType(
    {row.name: row for part in (CLIENTS, CONSUMER, PRODUCER, SECURITY, CONNECTOR) for row in part}
)
"""All settings by Java's name."""


def settings_of(client: Client) -> Iterable[Setting]:
    """The rows of one kind of client, in the order of the table."""
    return (row for row in TABLE.values() if row.has(client))
