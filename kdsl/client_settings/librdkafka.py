"""The properties of librdkafka 2.16 that Java's clients do not have; a test compares them with the installed library.

The transport ``librdkafka`` passes them on. Some have several names; `canonical` returns the one that kdsl uses, which
is Java's if there is one, so that two spellings of a property are recognised as the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kdsl.client_settings.model import Client, names

ANY = names("""
    api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.family
    broker.address.ttl broker.version.fallback builtin.features debug enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location https.ca.pem
    internal.termination.signal log.connection.close log.thread.name log_level max.in.flight
    message.copy.max.bytes message.max.bytes metadata.broker.list plugin.library.paths receive.message.max.bytes
    reconnect.backoff.jitter.ms sasl.kerberos.keytab sasl.kerberos.principal sasl.mechanisms
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.password sasl.username socket.blocking.max.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.crl.location ssl.curves.list ssl.engine.id ssl.engine.location ssl.key.location ssl.key.pem ssl.providers
    ssl.sigalgs.list statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
""")
CONSUMER = names("""
    coordinator.query.interval.ms fetch.error.backoff.ms fetch.message.max.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.protocol.type queued.max.messages.kbytes queued.min.messages
""")
PRODUCER = names("""
    batch.num.messages compression.codec compression.level enable.gapless.guarantee message.send.max.retries
    message.timeout.ms partitioner queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queuing.strategy request.required.acks
    sticky.partitioning.linger.ms
""")

OWNED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            names("""
    background_event_cb closesocket_cb connect_cb consume_cb default_topic_conf dr_cb dr_msg_cb
    enabled_events error_cb interceptors log.queue log_cb msg_order_cmp oauthbearer_token_refresh_cb
    offset_commit_cb opaque open_cb partitioner_cb rebalance_cb resolve_cb socket_cb
    ssl.certificate.verify_cb ssl_ca ssl_certificate ssl_engine_callback_data ssl_key stats_cb throttle_cb
"""),
            "it is not text but part of a program",
        ),
        **dict.fromkeys(
            names("""
    auto.commit.enable consume.callback.max.messages enable.auto.offset.store enable.partition.eof
    offset.store.method offset.store.path offset.store.sync.interval.ms
"""),
            "kdsl keeps and commits the offsets itself",
        ),
        **dict.fromkeys(
            ("delivery.report.only.error", "produce.offset.report"), "kdsl looks at every delivery report itself"
        ),
    }
)
"""Properties that a user cannot set, with the reason."""

_CANONICAL = {
    "metadata.broker.list": "bootstrap.servers",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
}

JAVA: Mapping[str, str] = MappingProxyType(
    {
        **_CANONICAL,
        "message.max.bytes": "max.request.size",
        "fetch.wait.max.ms": "fetch.max.wait.ms",
        "socket.timeout.ms": "request.timeout.ms",
        "socket.send.buffer.bytes": "send.buffer.bytes",
        "socket.receive.buffer.bytes": "receive.buffer.bytes",
        "queue.buffering.max.kbytes": "buffer.memory",
        "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
        "topic.metadata.propagation.max.ms": "max.block.ms",
        "partitioner": "partitioner.ignore.keys",
        "ssl.ca.location": "ssl.truststore.location",
        "ssl.ca.pem": "ssl.truststore.certificates",
        "ssl.key.location": "ssl.keystore.location",
        "ssl.certificate.location": "ssl.keystore.location",
        "ssl.key.pem": "ssl.keystore.key",
        "ssl.certificate.pem": "ssl.keystore.certificate.chain",
        "sasl.username": "sasl.jaas.config",
        "sasl.password": "sasl.jaas.config",
        "sasl.oauthbearer.config": "sasl.jaas.config",
        "sasl.kerberos.keytab": "sasl.jaas.config",
        "sasl.kerberos.principal": "sasl.jaas.config",
    }
)
"""The Java setting to write instead of a property, if there is one."""


def canonical(name: str) -> str:
    """The name that kdsl uses for a property of librdkafka that has several; other names unchanged."""
    return _CANONICAL.get(name, name)


def properties_of(client: Client) -> frozenset[str]:
    """The properties that only librdkafka has, for this kind of client."""
    return ANY | {"consumer": CONSUMER, "producer": PRODUCER, "admin": frozenset[str]()}[client]


def all_properties() -> frozenset[str]:
    """All properties that only librdkafka has and that a user may set."""
    return ANY | CONSUMER | PRODUCER
