from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec

from kdsl.client_settings.machine import Machine
from kdsl.client_settings.to_java import JavaSettings, java_settings
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from tests.problem_texts import without_code

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_java_s_names_are_handed_on_in_java_s_spelling() -> None:
    settings = {
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

    actual = java_settings(settings, "consumer")

    assert actual.problems == ()
    assert actual.settings == {
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
    settings = {"client.id.prefix": "p", "enable.auto.commit": "true", "auto.offset.reset": "latest", "group.id": "g"}

    actual = java_settings(settings, "consumer")

    assert actual.settings == {"group.id": "g"}


def test_what_the_connector_owns_is_refused() -> None:
    settings = java_settings({"value.deserializer": "x", "interceptor.classes": "y"}, "consumer")

    assert [problem.code for problem in settings.problems] == ["client-setting-owned", "client-setting-owned"]
    assert settings.settings == {}


def test_a_shaded_login_module_becomes_kafka_s() -> None:
    jaas = f'org.apache.flink.kafka.shaded.{PLAIN} required username="u" password="p\\"w";'

    settings = java_settings({"sasl.jaas.config": jaas}, "producer")

    assert settings.settings == {"sasl.jaas.config": f'{PLAIN} required username="u" password="p\\"w";'}


def test_secrets_are_resolved_into_the_jaas_string_with_quotes() -> None:
    jaas = f'{PLAIN} required username="u" password="${{env:PW}}";'

    settings = java_settings({"sasl.jaas.config": jaas}, "producer", lambda t: t.replace("${env:PW}", 'a"b'))

    assert settings.settings["sasl.jaas.config"] == f'{PLAIN} required username="u" password="a\\"b";'
    assert 'a\\"b' not in repr(settings)


def test_a_name_and_a_password_become_a_jaas_string() -> None:
    settings = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u", "sasl.password": "p"}

    actual = java_settings(settings, "admin")

    assert actual.problems == ()
    assert actual.settings["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    )


def test_the_connector_s_kerberos_keys_become_a_jaas_string() -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "connector.auth.open": "true",
        "connector.kerberos.principal": "me@REALM",
        "connector.kerberos.keytab": "/x/user.keytab",
        "connector.kerberos.krb5": "/x/krb5.conf",
    }

    actual = java_settings(settings, "consumer")

    assert actual.problems == ()
    assert actual.settings == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" storeKey="true" '
        'keyTab="/x/user.keytab" principal="me@REALM";',
    }


def test_librdkafka_s_own_names_are_a_warning_with_java_s_name() -> None:
    settings = java_settings({"socket.timeout.ms": "1", "debug": "all", "queue.buffering.max.ms": "7"}, "producer")

    assert [without_code(problem) for problem in settings.problems] == [
        "'socket.timeout.ms' has no effect with transport='jvm': only librdkafka has it; write request.timeout.ms",
        "'debug' has no effect with transport='jvm': only librdkafka has it; "
        "remove it, or read and write with transport='librdkafka'",
    ]
    assert settings.settings == {"linger.ms": "7"}


def test_an_unknown_name_is_handed_on_with_a_warning() -> None:
    settings = java_settings({"my.plugin.setting": "x"}, "consumer")

    assert [problem.code for problem in settings.problems] == ["client-setting-unknown"]
    assert settings.settings == {"my.plugin.setting": "x"}


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
    ("settings", "jaas"),
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
def test_every_way_to_write_a_kerberos_login_results_in_one_jaas_string(settings: dict[str, str], jaas: str) -> None:
    actual = java_settings({**SASL, **settings}, "consumer")

    assert actual.problems == ()
    assert actual.settings == {**SASL, "sasl.jaas.config": jaas, "sasl.kerberos.service.name": "kafka"}


def test_flink_s_login_applies_to_kafka_only_if_its_contexts_include_it() -> None:
    settings = {"security.kerberos.login.principal": "me@R", "security.kerberos.login.keytab": "/x/k"}

    assert "sasl.jaas.config" not in java_settings({**SASL, **settings}, "consumer").settings


def test_the_declared_service_is_used() -> None:
    settings = {**SASL, "sasl.kerberos.service.name": "broker"}
    assert java_settings(settings, "consumer").settings["sasl.kerberos.service.name"] == "broker"
    jaas = {"sasl.jaas.config": KEYTAB.replace(";", ' serviceName="broker";')}
    assert "sasl.kerberos.service.name" not in java_settings({**SASL, **jaas}, "consumer").settings


@pytest.mark.parametrize("key", ["principal", "keytab"])
def test_an_incomplete_kerberos_login_is_reported(key: str) -> None:
    problems = java_settings({**SASL, f"connector.kerberos.{key}": "x"}, "producer").problems

    assert [problem.code for problem in problems] == ["sasl-kerberos"]
    assert f"the Kerberos {key} is set without its" in problems[0].message


def test_a_principal_alone_is_reported_if_the_ticket_cache_is_turned_off() -> None:
    login = {"contexts": "KafkaClient", "use-ticket-cache": "false", "principal": "me@R"}
    settings = {f"security.kerberos.login.{name}": value for name, value in login.items()}

    (problem,) = java_settings({**SASL, **settings}, "producer").problems

    assert "the Kerberos principal is set without its keytab" in problem.message


def test_a_kerberos_login_without_kerberos_is_a_warning() -> None:
    settings = {
        "connector.kerberos.principal": "me@R",
        "connector.kerberos.keytab": "/x/k",
        "connector.auth.open": "true",
    }
    actual = java_settings({**settings, "security.protocol": "SSL"}, "admin")

    assert [problem.severity for problem in actual.problems] == ["warning"]
    assert actual.settings == {"security.protocol": "SSL"}


def test_krb5_conf_is_a_property_of_the_jvm() -> None:
    settings = {**SASL, "connector.kerberos.krb5": "/x/krb5.conf"}

    assert java_settings(settings, "consumer").system == {"java.security.krb5.conf": "/x/krb5.conf"}


def test_an_identity_provider_is_set_as_every_version_of_java_s_clients_accepts_it() -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "HUSH",
        "sasl.oauthbearer.scope": "orders",
    }
    actual = java_settings(settings, "consumer")

    assert actual.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="HUSH" scope="orders";',
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
    }
    assert actual.system == {"org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://idp/token"}
    assert "HUSH" not in repr(actual)


def test_a_mechanism_is_brought_to_java_s_spelling() -> None:
    settings = java_settings({"security.protocol": "SASL_SSL", "sasl.mechanism": "scram-sha-256"}, "consumer")

    assert settings.settings["sasl.mechanism"] == "SCRAM-SHA-256"


@pytest.mark.parametrize(
    ("module", "wanted"),
    [("plain.PlainLoginModule", "PLAIN"), ("scram.ScramLoginModule", "SCRAM-SHA-256 or SCRAM-SHA-512")],
)
def test_a_login_without_its_mechanism_is_reported_and_not_treated_as_kerberos(module: str, wanted: str) -> None:
    jaas = f'org.apache.kafka.common.security.{module} required username="u" password="p";'

    (problem,) = java_settings({"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas}, "consumer").problems

    assert (problem.severity, problem.fix) == ("error", f"write sasl.mechanism={wanted}")


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class TestKeys:
    """Java opens no PEM key that today's tools encrypt, and librdkafka opens all: one declaration serves both."""

    @staticmethod
    def pem(key: ec.EllipticCurvePrivateKey, kind: ser.PrivateFormat, password: str | None = None) -> str:
        how = ser.BestAvailableEncryption(password.encode()) if password else ser.NoEncryption()
        return key.private_bytes(ser.Encoding.PEM, kind, how).decode()

    @staticmethod
    def key_settings(settings: Mapping[str, str]) -> JavaSettings:
        common = {"security.protocol": "SSL", "ssl.keystore.type": "PEM"}
        return java_settings({**common, **settings}, "consumer", machine=Machine())

    @pytest.mark.parametrize(
        ("kind", "password"),
        [
            (ser.PrivateFormat.PKCS8, "secret"),
            (ser.PrivateFormat.TraditionalOpenSSL, "secret"),
            (ser.PrivateFormat.TraditionalOpenSSL, None),
        ],
    )
    def test_a_key_that_java_cannot_open_is_opened(
        self, key: ec.EllipticCurvePrivateKey, kind: ser.PrivateFormat, password: str | None
    ) -> None:
        settings = {"ssl.keystore.key": self.pem(key, kind, password), "ssl.keystore.certificate.chain": "chain"}
        settings |= {"ssl.key.password": password} if password else {}

        actual = self.key_settings(settings)

        assert actual.problems == ()
        assert actual.settings["ssl.keystore.key"] == self.pem(key, ser.PrivateFormat.PKCS8)
        assert "ssl.key.password" not in actual.settings

    def test_the_key_of_a_file_is_opened_with_its_chain(self, key: ec.EllipticCurvePrivateKey, tmp_path: Path) -> None:
        chain = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
        path = tmp_path / "client.pem"
        path.write_text(self.pem(key, ser.PrivateFormat.PKCS8, "secret") + chain, encoding="utf-8")

        settings = self.key_settings({"ssl.keystore.location": str(path), "ssl.key.password": "secret"})

        assert settings.problems == ()
        assert settings.settings["ssl.keystore.key"] == self.pem(key, ser.PrivateFormat.PKCS8)
        assert settings.settings["ssl.keystore.certificate.chain"] == chain
        assert "ssl.keystore.location" not in settings.settings

    def test_a_key_that_java_opens_stays_without_a_password_that_it_would_try(
        self, key: ec.EllipticCurvePrivateKey, tmp_path: Path
    ) -> None:
        path = tmp_path / "client.pem"
        path.write_text(self.pem(key, ser.PrivateFormat.PKCS8), encoding="utf-8")

        settings = self.key_settings({"ssl.keystore.location": str(path), "ssl.key.password": "not needed"})

        assert settings.settings["ssl.keystore.location"] == str(path)
        assert settings.settings.keys().isdisjoint({"ssl.key.password", "ssl.keystore.key"})

    def test_a_file_of_another_machine_is_left_to_java(self) -> None:
        settings = self.key_settings({"ssl.keystore.location": "/nowhere/client.pem", "ssl.key.password": "secret"})

        assert settings.problems == ()
        assert settings.settings["ssl.keystore.location"] == "/nowhere/client.pem"
        assert settings.settings["ssl.key.password"] == "secret"

    def test_a_binary_file_is_reported(self, tmp_path: Path) -> None:
        path = tmp_path / "client.pem"
        path.write_bytes(b"\xff\xfe")

        (problem,) = self.key_settings({"ssl.keystore.location": str(path)}).problems

        assert problem.message == f"'ssl.keystore.location' {path} cannot be read: it is not text"

    @pytest.mark.parametrize(
        ("password", "message"),
        [
            ("wrong-word", "'ssl.keystore.key' has a key that cannot be opened: 'ssl.key.password' is wrong"),
            (None, "'ssl.keystore.key' has an encrypted key, but 'ssl.key.password' is missing"),
        ],
    )
    def test_a_key_that_cannot_be_decrypted_is_reported_without_the_password(
        self, key: ec.EllipticCurvePrivateKey, password: str | None, message: str
    ) -> None:
        settings = {
            "ssl.keystore.key": self.pem(key, ser.PrivateFormat.PKCS8, "secret"),
            "ssl.keystore.certificate.chain": "",
        }
        (problem,) = self.key_settings({**settings, **({"ssl.key.password": password} if password else {})}).problems

        assert message in problem.message
        assert "wrong-word" not in str(problem)

    def test_without_a_machine_nothing_is_opened(self, key: ec.EllipticCurvePrivateKey) -> None:
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.key": self.pem(key, ser.PrivateFormat.PKCS8, "secret")}

        assert java_settings(settings, "consumer").settings["ssl.keystore.key"] == settings["ssl.keystore.key"]


KERBEROS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
OPTIONS = 'Krb5LoginModule required useKeyTab=true principal="p"'


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"connector.kerberos.principal": "p", "connector.kerberos.keytab": "obs://b/k.keytab"},
            "the Kerberos keytab is 'obs://b/k.keytab': it is not a local file (obs://), and no package",
        ),
        (
            {"sasl.kerberos.principal": "p", "sasl.kerberos.keytab": "oss://b/k.keytab"},
            "the Kerberos keytab is 'oss://b/k.keytab': it is not a local file",
        ),
        (
            {
                "security.kerberos.login.contexts": "KafkaClient",
                "security.kerberos.login.principal": "p",
                "security.kerberos.login.keytab": "s3://b/k.keytab",
            },
            "the Kerberos keytab is 's3://b/k.keytab': it is not a local file",
        ),
        (
            {"sasl.jaas.config": f'{OPTIONS} keyTab="obs://b/k.keytab";'},
            "the keyTab of 'sasl.jaas.config' is 'obs://b/k.keytab': it is not a local file",
        ),
        (
            {"connector.kerberos.krb5": "obs://b/krb5.conf"},
            "'connector.kerberos.krb5' is 'obs://b/krb5.conf': it is no",
        ),
    ],
)
@pytest.mark.parametrize("machine", [None, Machine()])
def test_an_unreachable_kerberos_file_is_reported_while_planning(
    settings: dict[str, str], message: str, machine: Machine | None
) -> None:
    (problem,) = java_settings({**KERBEROS, **settings}, "consumer", machine=machine).problems

    assert problem.severity == "error"
    assert message in problem.message
    assert problem.fix.endswith("or install a fetcher")


def test_paths_of_kerberos_files_are_unchanged() -> None:
    settings = {"sasl.jaas.config": f'{OPTIONS} keyTab="/etc/k.keytab";', "connector.kerberos.krb5": "/etc/krb5.conf"}

    java = java_settings({**KERBEROS, **settings}, "consumer")

    assert java.problems == ()
    assert 'keyTab="/etc/k.keytab"' in java.settings["sasl.jaas.config"]
    assert java.system == {"java.security.krb5.conf": "/etc/krb5.conf"}


def test_a_login_by_kerberos_that_librdkafka_refuses_does_not_advise_to_remove_its_settings() -> None:
    settings = {**KERBEROS, "sasl.kerberos.service.name": "kafka"}
    refused = [problem.code for problem in librdkafka_settings(settings, "consumer").problems]
    implied = [problem.code for problem in librdkafka_settings({**settings, "sasl.mechanism": ""}, "consumer").problems]
    other = [
        problem.code for problem in librdkafka_settings({**settings, "sasl.mechanism": "PLAIN"}, "consumer").problems
    ]

    assert refused == implied == ["sasl-gssapi"]
    assert "client-setting-dropped" in other


@pytest.mark.parametrize(
    ("contexts", "shown"),
    [({}, "is not set"), ({"security.kerberos.login.contexts": "Client"}, "is 'Client'")],
)
def test_a_flink_login_that_is_not_for_kafka_is_reported(contexts: dict[str, str], shown: str) -> None:
    settings = {"security.kerberos.login.principal": "me@R", "security.kerberos.login.keytab": "/x/k", **contexts}

    (problem,) = java_settings({**SASL, **settings}, "consumer").problems

    assert without_code(problem) == (
        "'security.kerberos.login.principal', 'security.kerberos.login.keytab' without effect, because "
        f"'security.kerberos.login.contexts' {shown}: the login is not for Kafka; write "
        "security.kerberos.login.contexts=KafkaClient, or remove them"
    )
    assert problem.severity == "warning"


@pytest.mark.parametrize("translate", [librdkafka_settings, java_settings])
def test_a_kerberos_login_with_another_mechanism_is_reported(translate: Callable[..., Any]) -> None:
    settings = {"security.protocol": "SSL", "security.kerberos.login.keytab": "/x/k"}

    (problem,) = translate(settings, "consumer").problems

    assert problem.message.startswith(
        "'security.kerberos.login.keytab' without effect, because 'security.protocol' is 'SSL'"
    )
