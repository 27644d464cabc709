from __future__ import annotations

import pytest

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


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
KEYTAB = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" storeKey="true" keyTab="/x/k" '
    'principal="me@R";'
)
TICKET = (
    'com.sun.security.auth.module.Krb5LoginModule required useTicketCache="true" renewTGT="true" doNotPrompt="true"{};'
)


@pytest.mark.parametrize(
    ("given", "jaas"),
    [
        ({"connector.kerberos.principal": "me@R", "connector.kerberos.keytab": "/x/k"}, KEYTAB),
        ({"sasl.kerberos.principal": "me@R", "sasl.kerberos.keytab": "/x/k"}, KEYTAB),
        (
            {
                "security.kerberos.login.principal": "me@R",
                "security.kerberos.login.keytab": "/x/k",
                "security.kerberos.login.contexts": "Client, KafkaClient",
            },
            KEYTAB,
        ),
        ({"security.kerberos.login.contexts": "KafkaClient"}, TICKET.format("")),
        (
            {
                "security.kerberos.login.contexts": "KafkaClient",
                "security.kerberos.login.use-ticket-cache": "true",
                "security.kerberos.login.principal": "me@R",
            },
            TICKET.format(' principal="me@R"'),
        ),
        ({"sasl.jaas.config": KEYTAB, "connector.kerberos.principal": "other@R"}, KEYTAB),
    ],
)
def test_every_way_to_write_a_kerberos_login_is_one_jaas_text(given: dict[str, str], jaas: str) -> None:
    made = java_settings({**SASL, **given}, "consumer")

    assert made.problems == ()
    assert made.settings == {**SASL, "sasl.jaas.config": jaas, "sasl.kerberos.service.name": "kafka"}


def test_flink_s_login_counts_for_kafka_only_where_its_contexts_say_so() -> None:
    given = {"security.kerberos.login.principal": "me@R", "security.kerberos.login.keytab": "/x/k"}

    assert "sasl.jaas.config" not in java_settings({**SASL, **given}, "consumer").settings


def test_the_service_is_the_one_that_was_given() -> None:
    given = {**SASL, "sasl.kerberos.service.name": "broker"}
    assert java_settings(given, "consumer").settings["sasl.kerberos.service.name"] == "broker"
    jaas = {"sasl.jaas.config": KEYTAB.replace(";", ' serviceName="broker";')}
    assert "sasl.kerberos.service.name" not in java_settings({**SASL, **jaas}, "consumer").settings


@pytest.mark.parametrize("key", ["principal", "keytab"])
def test_half_of_a_kerberos_login_is_told(key: str) -> None:
    problems = java_settings({**SASL, f"connector.kerberos.{key}": "x"}, "producer").problems

    assert [problem.code for problem in problems] == ["sasl-kerberos"]
    assert f"the Kerberos {key} is given without its" in problems[0].message


def test_a_kerberos_login_without_kerberos_is_a_warning() -> None:
    given = {"connector.kerberos.principal": "me@R", "connector.kerberos.keytab": "/x/k", "connector.auth.open": "true"}
    made = java_settings({**given, "security.protocol": "SSL"}, "admin")

    assert [problem.severity for problem in made.problems] == ["warning"]
    assert made.settings == {"security.protocol": "SSL"}


def test_krb5_conf_is_a_property_of_the_jvm() -> None:
    given = {**SASL, "connector.kerberos.krb5": "/x/krb5.conf"}

    assert java_settings(given, "consumer").system == {"java.security.krb5.conf": "/x/krb5.conf"}


def test_an_identity_provider_is_told_as_every_version_of_java_s_clients_takes_it() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "HUSH",
        "sasl.oauthbearer.scope": "orders",
    }
    made = java_settings(given, "consumer")

    assert made.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="HUSH" scope="orders";',
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
    }
    assert made.system == {"org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://idp/token"}
    assert "HUSH" not in repr(made)
