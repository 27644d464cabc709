from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from kdsl.client_settings.librdkafka import all_properties, properties_of
from kdsl.client_settings.model import CLIENT_KINDS, MAX_INT, Client, Setting
from kdsl.client_settings.settings import TABLE, settings_of
from kdsl.client_settings.to_librdkafka import LibrdkafkaSettings, librdkafka_settings
from tests.client_settings.installed import DATA, create, errors
from tests.problem_texts import without_code

SAMPLES = {
    "bootstrap.servers": "kafka-1.example:9092,[::1]:9093",
    "security.protocol": "PLAINTEXT",
    "ssl.truststore.type": "PEM",
    "ssl.keystore.type": "PEM",
}


def codes(translated: LibrdkafkaSettings) -> list[str]:
    return [problem.code for problem in translated.problems]


def values(row: Setting) -> Iterator[str]:
    """Values that Java takes, those at the ends of its range among them."""
    if row.name in SAMPLES:
        yield SAMPLES[row.name]
    elif row.values:
        yield from row.values
        yield row.values[0].swapcase()
    elif row.kind == "bool":
        yield from ("true", "False")
    elif row.kind == "int":
        yield from dict.fromkeys([str(row.low or 0), "1", "5", str(row.high or MAX_INT)])
    else:
        yield "a text"


JAVA_REFUSES = {
    ("delivery.timeout.ms", "0"): "producer-delivery-timeout",
    ("delivery.timeout.ms", "1"): "producer-delivery-timeout",
    ("delivery.timeout.ms", "5"): "producer-delivery-timeout",
    ("max.in.flight.requests.per.connection", str(MAX_INT)): "producer-idempotence",
}

PASSED = [
    (client, row, value)
    for client in CLIENT_KINDS
    for row in settings_of(client)
    for value in values(row)
    if row.act not in ("owned", "refused", "derived")
]


@pytest.mark.parametrize(("client", "row", "value"), PASSED, ids=lambda v: v.name if isinstance(v, Setting) else str(v))
def test_librdkafka_takes_every_setting_that_is_passed_on_with_every_value_that_java_takes(
    client: Client, row: Setting, value: str
) -> None:
    translated = librdkafka_settings({row.name: value}, client)

    if (row.name, value) in JAVA_REFUSES:
        assert [problem.code for problem in errors(translated)] == [JAVA_REFUSES[row.name, value]]
    else:
        assert errors(translated) == []
        assert [line for line in create(client, translated.client_config()) if "ignored" in line] == []


@pytest.mark.parametrize("client", CLIENT_KINDS)
def test_librdkafka_takes_the_defaults(client: Client) -> None:
    translated = librdkafka_settings({}, client)

    assert translated.problems == ()
    assert create(client, translated.client_config()) == []


def test_java_s_defaults_apply_where_librdkafka_s_differ() -> None:
    common = {
        "connections.max.idle.ms": "540000",
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "1000",
        "socket.timeout.ms": "30000",
    }

    assert librdkafka_settings({}, "consumer").defaults == {
        **common,
        "allow.auto.create.topics": "true",
        "check.crcs": "true",
        "isolation.level": "read_uncommitted",
    }
    assert librdkafka_settings({}, "producer").defaults == {
        **common,
        "delivery.timeout.ms": "120000",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "5",
        "message.max.bytes": "1048576",
        "partitioner": "murmur2_random",
        "request.timeout.ms": "30000",
        "topic.metadata.propagation.max.ms": "60000",
    }
    assert librdkafka_settings({}, "admin").defaults == {
        **common,
        "connections.max.idle.ms": "300000",
        "enable.metrics.push": "false",
    }


def test_a_consumer_never_commits_automatically_and_never_resets_its_offset() -> None:
    sample = {"enable.auto.commit": "true", "auto.offset.reset": "latest"}

    merged = librdkafka_settings(sample, "consumer").client_config({"auto.offset.reset": "latest"})

    assert {k: merged[k] for k in ("enable.auto.commit", "auto.offset.reset", "enable.auto.offset.store")} == {
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "enable.auto.offset.store": "false",
    }


def test_an_admin_client_that_looks_for_a_topic_does_not_create_it() -> None:
    assert (
        librdkafka_settings({"allow.auto.create.topics": "true"}, "admin").client_config()["allow.auto.create.topics"]
        == "false"
    )


def test_sizes_are_stronger_than_defaults_and_weaker_than_the_user() -> None:
    translated = librdkafka_settings({"max.partition.fetch.bytes": "5000"}, "consumer")

    merged = translated.client_config({"fetch.message.max.bytes": 7, "queued.min.messages": 10, "check.crcs": "false"})

    assert {k: merged.get(k) for k in ("max.partition.fetch.bytes", "fetch.message.max.bytes")} == {
        "max.partition.fetch.bytes": "5000",
        "fetch.message.max.bytes": None,
    }
    assert merged["queued.min.messages"] == "10"
    assert merged["check.crcs"] == "false"


@pytest.mark.parametrize(
    ("client", "sample", "settings"),
    [
        ("consumer", {"fetch.max.wait.ms": "200"}, {"fetch.wait.max.ms": "200"}),
        ("consumer", {"request.timeout.ms": "20000"}, {"socket.timeout.ms": "20000"}),
        (
            "producer",
            {"request.timeout.ms": "20000"},
            {"socket.timeout.ms": "20000", "request.timeout.ms": "20000"},
        ),
        ("producer", {"buffer.memory": "33554433"}, {"queue.buffering.max.kbytes": "32769"}),
        ("producer", {"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ("producer", {"max.block.ms": "100"}, {"topic.metadata.propagation.max.ms": "100"}),
        ("consumer", {"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ("consumer", {"receive.buffer.bytes": "65536"}, {"socket.receive.buffer.bytes": "65536"}),
        ("admin", {"metadata.max.age.ms": "1000"}, {"topic.metadata.refresh.interval.ms": "1000"}),
        ("admin", {"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ("admin", {"metadata.recovery.strategy": "NONE"}, {"metadata.recovery.strategy": "none"}),
        ("producer", {"acks": "-1"}, {"acks": "all"}),
        ("producer", {"acks": " ALL "}, {"acks": "all"}),
        ("producer", {"enable.idempotence": "TRUE"}, {"enable.idempotence": "true"}),
        ("producer", {"linger.ms": " +05 "}, {"linger.ms": "5"}),
        ("producer", {"partitioner.ignore.keys": "true"}, {"partitioner": "random"}),
        (
            "producer",
            {"compression.type": "gzip", "compression.gzip.level": "9", "compression.lz4.level": "3"},
            {"compression.type": "gzip", "compression.level": "9"},
        ),
        ("consumer", {"bootstrap.servers": "PLAINTEXT://a:1, b:2,,"}, {"bootstrap.servers": "a:1,b:2"}),
        ("admin", {"client.id": "x", "group.id": "g", "linger.ms": "1"}, {"client.id": "x"}),
    ],
)
def test_a_setting_becomes_librdkafka_s(client: Client, sample: dict[str, str], settings: dict[str, str]) -> None:
    translated = librdkafka_settings(sample, client)

    assert translated.problems == ()
    assert translated.settings == settings
    assert create(client, translated.client_config()) == []


def test_a_compression_level_may_be_a_reference() -> None:
    translated = librdkafka_settings({"compression.type": "lz4", "compression.lz4.level": "${env:LEVEL}"}, "producer")

    assert translated.problems == ()
    assert translated.settings["compression.level"] == "${env:LEVEL}"


@pytest.mark.parametrize(
    ("client", "sample", "name", "held"),
    [
        ("consumer", {"fetch.max.bytes": "2147483647"}, "fetch.max.bytes", "2147483135"),
        ("consumer", {"fetch.min.bytes": "0"}, "fetch.min.bytes", "1"),
        ("producer", {"batch.size": "0"}, "batch.size", "1"),
        ("producer", {"retry.backoff.ms": "0"}, "retry.backoff.ms", "1"),
        ("producer", {"compression.type": "zstd", "compression.zstd.level": "22"}, "compression.level", "12"),
        ("producer", {"compression.type": "zstd", "compression.zstd.level": "-9"}, "compression.level", "1"),
    ],
)
def test_a_number_outside_of_librdkafka_s_range_becomes_the_nearest_with_a_warning(
    client: Client, sample: dict[str, str], name: str, held: str
) -> None:
    translated = librdkafka_settings(sample, client)

    assert codes(translated) == ["client-setting-range"]
    assert errors(translated) == []
    assert translated.settings[name] == held
    assert create(client, translated.client_config()) == []


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"linger.ms": "5.0"}, "'linger.ms' has the value '5.0'; use an integer from 0"),
        ({"linger.ms": "-1"}, "'linger.ms' has the value '-1'; use an integer from 0"),
        ({"retries": "2147483648"}, "'retries' has the value '2147483648'; use an integer from 0 to 2147483647"),
        ({"enable.idempotence": "yes"}, "'enable.idempotence' has the value 'yes'; use true or false"),
        ({"linger.ms": ""}, "'linger.ms' has the value ''; use an integer from 0"),
        (
            {"compression.type": "gzp"},
            "'compression.type' has the value 'gzp' (did you mean 'gzip'?); "
            "use one of 'none', 'gzip', 'snappy', 'lz4' and 'zstd'",
        ),
        (
            {"compression.type": "gzip", "compression.gzip.level": "10"},
            "'compression.gzip.level' has the value '10'; use an integer from 1 to 9",
        ),
        (
            {"enable.idempotence": "true", "acks": "1", "retries": "0"},
            "'enable.idempotence' is 'true', but 'acks' is '1' and 'retries' is '0'; "
            "write acks=all and retries above 0, or enable.idempotence=false",
        ),
        (
            {"max.in.flight.requests.per.connection": "6"},
            "'max.in.flight.requests.per.connection' is 6, but idempotence allows at most 5; "
            "write max.in.flight.requests.per.connection=5 or less, or enable.idempotence=false",
        ),
        (
            {"linger.ms": "100000", "delivery.timeout.ms": "120000"},
            "'delivery.timeout.ms' is 120000, less than 'linger.ms' (100000) plus 'request.timeout.ms' "
            "(30000); write delivery.timeout.ms=130000 or more",
        ),
        (
            {"linger.ms": "5", "queue.buffering.max.ms": "6"},
            "'linger.ms' and 'queue.buffering.max.ms' mean the same, but one is set to '5' and the other to '6'; "
            "keep 'linger.ms'",
        ),
        (
            {"message.max.bytes": "1000", "max.request.size": "2000"},
            "'max.request.size' and 'message.max.bytes' mean the same, but one is set to '2000' and the other to "
            "'1000'; keep 'max.request.size'",
        ),
        (
            {"value.serializer": "x"},
            "'value.serializer' cannot be set: kdsl moves bytes; the formats of the table read and write them; "
            "remove it; the table names its formats",
        ),
        (
            {"config.providers.a.class": "x"},
            "'config.providers.a.class' cannot be set: kdsl resolves references itself; "
            "remove it; write ${env:NAME}, ${file:PATH}, ${file:PATH:KEY} or ${secret_values.NAME}",
        ),
        ({"dr_cb": "x"}, "'dr_cb' cannot be set: it is not text but part of a program; remove it"),
        (
            {"security.providers": "x"},
            "'security.providers' cannot be set: it names a Java class; remove it, or use Spark's own Kafka connector "
            "(transport='jvm')",
        ),
    ],
)
def test_what_java_or_kdsl_refuses_is_an_error(sample: dict[str, str], message: str) -> None:
    translated = librdkafka_settings(sample, "producer")

    assert [without_code(problem) for problem in errors(translated)] == [message]


def test_a_start_by_duration_is_sent_to_the_start_mode() -> None:
    (problem,) = librdkafka_settings({"auto.offset.reset": "by_duration:PT1H"}, "consumer").problems

    assert without_code(problem) == (
        "'auto.offset.reset' has the value 'by_duration:PT1H'; use one of 'earliest', 'latest' and 'none'; "
        "to start at a time, use the startup mode timestamp (scan.startup.mode)"
    )


def test_all_problems_are_reported_at_once() -> None:
    sample = {"linger.ms": "x", "acks": "2", "transactional.id": "t", "lingr.ms": "1", "security.protocol": "TLS"}

    assert codes(librdkafka_settings(sample, "producer")) == [
        "client-setting-value",
        "client-setting-value",
        "client-setting-unknown",
        "client-setting-value",
        "client-setting-owned",
    ]


def test_an_unknown_name_is_a_warning_with_a_suggestion() -> None:
    translated = librdkafka_settings({"fetch.max.wait": "3"}, "consumer")

    assert [(without_code(p), p.severity) for p in translated.problems] == [
        (
            "'fetch.max.wait' is not a setting of a Kafka client (did you mean 'fetch.max.wait.ms'?) and has no "
            "effect; write a name of Kafka's consumer or producer configuration, or remove it",
            "warning",
        )
    ]
    assert translated.settings == {}


def test_a_setting_without_counterpart_is_left_out_with_a_warning() -> None:
    translated = librdkafka_settings({"session.timeout.ms": "10000", "max.poll.records": "10"}, "consumer")

    assert [without_code(problem) for problem in translated.problems] == [
        "'session.timeout.ms' has no effect: kdsl assigns partitions itself, so that no consumer of it is a member "
        "of the group; remove it",
        "'max.poll.records' has no effect: kdsl reads Arrow batches, bounded by records and by bytes; remove it",
    ]
    assert translated.settings == {}


@pytest.mark.parametrize(
    ("sample", "reason"), [({"acks": "1"}, "'acks' is '1'"), ({"retries": "0"}, "'retries' is '0'")]
)
def test_default_idempotence_is_disabled_with_a_warning(sample: dict[str, str], reason: str) -> None:
    translated = librdkafka_settings(sample, "producer")

    assert [problem.message for problem in translated.problems] == [
        f"{reason}, which turns idempotence off: a retry may write a record twice"
    ]
    assert translated.defaults["enable.idempotence"] == "false"
    assert translated.defaults["max.in.flight.requests.per.connection"] == "1"
    assert create("producer", translated.client_config()) == []


def test_without_idempotence_one_request_is_in_flight_unless_more_are_asked_for() -> None:
    alone = librdkafka_settings({"enable.idempotence": "false"}, "producer")
    more = librdkafka_settings(
        {"enable.idempotence": "false", "max.in.flight.requests.per.connection": "7"}, "producer"
    )

    assert alone.client_config()["max.in.flight.requests.per.connection"] == "1"
    assert more.client_config()["max.in.flight.requests.per.connection"] == "7"
    assert create("producer", more.client_config()) == []


def test_the_default_delivery_timeout_grows_with_the_timeouts_within_it() -> None:
    translated = librdkafka_settings({"linger.ms": "200000"}, "producer")

    assert translated.problems == ()
    assert translated.defaults["delivery.timeout.ms"] == "230000"


def test_the_longest_wait_before_a_connection_follows_the_first() -> None:
    first = librdkafka_settings({"reconnect.backoff.ms": "5000"}, "consumer")
    both = librdkafka_settings({"reconnect.backoff.ms": "5000", "reconnect.backoff.max.ms": "700"}, "consumer")
    longest = librdkafka_settings({"reconnect.backoff.max.ms": "20"}, "consumer")

    assert first.client_config()["reconnect.backoff.max.ms"] == "5000"
    assert both.client_config()["reconnect.backoff.ms"] == "700"
    assert longest.client_config()["reconnect.backoff.ms"] == "20"
    for translated in (first, both, longest):
        assert create("consumer", translated.client_config()) == []


def test_a_request_outlasts_the_wait_of_a_fetch() -> None:
    translated = librdkafka_settings({"fetch.max.wait.ms": "60000"}, "consumer")

    assert translated.client_config()["socket.timeout.ms"] == "61000"
    assert create("consumer", translated.client_config()) == []


@pytest.mark.parametrize("client", CLIENT_KINDS)
def test_librdkafka_s_own_names_pass(client: Client) -> None:
    sample = {"statistics.interval.ms": "1000", "log_level": "3", "socket.keepalive.enable": "true"}
    sample |= {"queued.min.messages": "10", "sticky.partitioning.linger.ms": "7", "socket.timeout.ms": "5000"}

    translated = librdkafka_settings(sample, client)

    assert translated.problems == ()
    assert dict(translated.settings) == {k: v for k, v in sample.items() if k in properties_of(client)}
    assert create(client, translated.client_config()) == []


def test_librdkafka_s_own_name_is_allowed_with_a_java_setting_that_becomes_several() -> None:
    translated = librdkafka_settings({"request.timeout.ms": "20000", "socket.timeout.ms": "25000"}, "producer")

    assert translated.problems == ()
    assert translated.settings == {"socket.timeout.ms": "25000", "request.timeout.ms": "20000"}


def test_a_second_name_counts_as_java_s() -> None:
    translated = librdkafka_settings({"queue.buffering.max.ms": "7", "metadata.broker.list": "a:1"}, "producer")

    assert translated.settings == {"bootstrap.servers": "a:1", "linger.ms": "7"}


def test_a_setting_of_another_kind_of_client_is_passed_over() -> None:
    assert librdkafka_settings({"linger.ms": "x", "value.serializer": "y"}, "consumer").problems == ()


def test_references_are_checked_for_syntax_only_until_they_are_resolved() -> None:
    sample = {"linger.ms": "${env:LINGER}", "acks": "${env:ACKS}", "security.protocol": "${env:PROTOCOL}"}
    values = {"${env:LINGER}": "7", "${env:ACKS}": "all", "${env:PROTOCOL}": "plaintext"}

    early, late = librdkafka_settings(sample, "producer"), librdkafka_settings(sample, "producer", values.__getitem__)

    assert early.problems == ()
    assert early.settings["linger.ms"] == "${env:LINGER}"
    assert late.problems == ()
    assert late.settings == {"linger.ms": "7", "acks": "all", "security.protocol": "PLAINTEXT"}


def test_an_invalid_reference_is_reported_without_its_content() -> None:
    (problem,) = librdkafka_settings({"sasl.jaas.config": "${evn:HUSH-HUSH}"}, "consumer").problems

    assert problem.code == "secret-reference"
    assert "(did you mean 'env'?)" in problem.message
    assert "HUSH" not in str(problem)


def test_a_translation_prints_no_secret() -> None:
    jaas = 'a.PlainLoginModule required username="u" password="HUSH";'
    sample = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}

    translated = librdkafka_settings(sample, "consumer")

    assert translated.settings["sasl.password"] == "HUSH"
    assert "HUSH" not in repr(translated)


ALL = (*TABLE, *sorted(all_properties()))
NAMES = st.sampled_from([n for n in ALL if n not in ("plugin.library.paths", "builtin.features")])
TEXTS = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "true", "none", "PLAIN", "SASL_SSL", "x", "${env:X}", str(DATA / "ca.pem")]),
    st.text(max_size=8),
)


@given(st.dictionaries(NAMES, TEXTS, max_size=6))
@settings(max_examples=200, deadline=None)
def test_no_properties_make_a_translation_fail(properties: dict[str, str]) -> None:
    for client in CLIENT_KINDS:
        translated = librdkafka_settings(properties, client)

        assert set(translated.settings) <= {t.name for r in TABLE.values() for t in r.targets} | {*ALL}
