from __future__ import annotations

from kdsl.client.connector import ConnectorSettings
from kdsl.client.java import java_settings

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_java_s_names_are_handed_on_in_java_s_spelling() -> None:
    given = {
        "security.protocol": "ssl",
        "acks": "-1",
        "isolation.level": "READ_COMMITTED",
        "fetch.max.wait.ms": " 100 ",
        "session.timeout.ms": "6000",
        "ssl.truststore.location": "/x/trust.jks",
        "ssl.truststore.password": "pw ",
        "ssl.endpoint.identification.algorithm": "none",
        "security.providers": "com.example.Provider",
    }

    made = java_settings(given, "consumer")

    assert made.problems == ()
    assert made.settings == {
        "security.protocol": "SSL",
        "isolation.level": "read_committed",
        "fetch.max.wait.ms": "100",
        "session.timeout.ms": "6000",
        "ssl.truststore.location": "/x/trust.jks",
        "ssl.truststore.password": "pw ",
        "ssl.endpoint.identification.algorithm": "",
        "security.providers": "com.example.Provider",
    }


def test_what_is_the_connector_s_is_taken_out() -> None:
    given = {"client.id.prefix": "p", "enable.auto.commit": "true", "auto.offset.reset": "latest", "group.id": "g"}

    made = java_settings(given, "consumer")

    assert made.settings == {"group.id": "g"}
    assert made.connector == ConnectorSettings(
        group_id="g", client_id_prefix="p", auto_commit=True, auto_offset_reset="latest"
    )


def test_what_the_connector_owns_is_refused() -> None:
    made = java_settings({"value.deserializer": "x", "interceptor.classes": "y"}, "consumer")

    assert [problem.code for problem in made.problems] == ["client-setting-owned", "client-setting-owned"]
    assert made.settings == {}


def test_a_shaded_login_module_becomes_kafka_s() -> None:
    jaas = f'org.apache.flink.kafka.shaded.{PLAIN} required username="u" password="p\\"w";'

    made = java_settings({"sasl.jaas.config": jaas}, "producer")

    assert made.settings == {"sasl.jaas.config": f'{PLAIN} required username="u" password="p\\"w";'}


def test_secrets_are_resolved_into_the_jaas_text_with_quotes() -> None:
    jaas = f'{PLAIN} required username="u" password="${{env:PW}}";'

    made = java_settings({"sasl.jaas.config": jaas}, "producer", lambda t: t.replace("${env:PW}", 'a"b'))

    assert made.settings["sasl.jaas.config"] == f'{PLAIN} required username="u" password="a\\"b";'
    assert 'a\\"b' not in repr(made)


def test_a_name_and_a_password_become_a_jaas_text() -> None:
    given = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u", "sasl.password": "p"}

    made = java_settings(given, "admin")

    assert made.problems == ()
    assert made.settings["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    )


def test_the_connector_s_kerberos_keys_become_a_jaas_text() -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "connector.auth.open": "true",
        "connector.kerberos.principal": "me@REALM",
        "connector.kerberos.keytab": "/x/user.keytab",
        "connector.kerberos.krb5": "/x/krb5.conf",
    }

    made = java_settings(given, "consumer")

    assert made.problems == ()
    assert made.settings == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" storeKey="true" '
        'keyTab="/x/user.keytab" principal="me@REALM";',
    }


def test_librdkafka_s_own_names_are_a_warning_with_java_s_name() -> None:
    made = java_settings({"socket.timeout.ms": "1", "debug": "all", "queue.buffering.max.ms": "7"}, "producer")

    assert [str(problem) for problem in made.problems] == [
        "'socket.timeout.ms' changes nothing with transport='jvm': it is librdkafka's; write request.timeout.ms",
        "'debug' changes nothing with transport='jvm': it is librdkafka's; "
        "remove it, or read and write with transport='librdkafka'",
    ]
    assert made.settings == {"linger.ms": "7"}


def test_an_unknown_name_is_handed_on_with_a_warning() -> None:
    made = java_settings({"my.plugin.setting": "x"}, "consumer")

    assert [problem.code for problem in made.problems] == ["client-setting-unknown"]
    assert made.settings == {"my.plugin.setting": "x"}


def test_without_idempotence_one_request_is_in_flight_unless_more_are_asked_for() -> None:
    name = "max.in.flight.requests.per.connection"

    assert java_settings({"enable.idempotence": "false"}, "producer").settings[name] == "1"
    assert java_settings({"enable.idempotence": "false", name: "3"}, "producer").settings[name] == "3"
