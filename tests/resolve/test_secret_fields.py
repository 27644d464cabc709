"""``dew.*``: options whose values are keys at a secrets provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from kdsl.client_settings.properties import Properties
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import TableDef
from kdsl.resolve import problems
from kdsl.secrets import resolve
from tests.installed_plugins import InstallPlugins
from tests.resolve.tables import table

OPTIONS = {
    "dew_endpoint": "kms.example.com",
    "dew_secret": "kafka",
    "dew_fields": "properties.ssl.truststore.password; properties.sasl.jaas.config",
    "dew_version": "v1",
}
GIVEN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "login",
    "ssl.truststore.location": "/x/trust.jks",
    "ssl.truststore.password": "store",
}
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="HUSH";'


@pytest.fixture
def dew(tmp_path: Path, install_plugins: InstallPlugins) -> None:
    """An installed provider ``dew``."""
    (tmp_path / "dew_for_tests.py").write_text(
        "def secret(key, endpoint, secret_name, version):\n"
        "    assert (endpoint, secret_name, version) == ('kms.example.com', 'kafka', 'v1')\n"
        f"    return {{'login': {LOGIN!r}, 'store': 'HUSH'}}[key]\n"
    )
    install_plugins({"kdsl.secrets": {"dew": "dew_for_tests:secret"}})


def declare(options: Mapping[str, str] = OPTIONS, properties: Mapping[str, str] = GIVEN) -> TableDef:
    result = table()
    return attrs.evolve(
        result,
        options=KafkaOptions(topic=result.options.topic, **options),  # type: ignore[arg-type]
        properties=Properties(properties),
    )


def problems_of(actual: TableDef) -> list[str]:
    return [str(p) for p in problems(actual, "read") if p.code == "decrypt-fields"]


@pytest.mark.usefixtures("dew")
def test_the_named_options_are_references_to_the_provider() -> None:
    properties = declare().properties

    query = "endpoint=kms.example.com&secret_name=kafka&version=v1"
    assert properties["sasl.jaas.config"] == f"${{dew:login?{query}}}"
    assert properties["ssl.truststore.password"] == f"${{dew:store?{query}}}"
    assert properties["ssl.truststore.location"] == "/x/trust.jks"
    assert resolve(str(properties["sasl.jaas.config"])) == LOGIN
    assert problems(declare(), "read") == []


@pytest.mark.usefixtures("dew")
def test_they_stay_references_when_the_table_is_changed() -> None:
    result = declare()

    assert attrs.evolve(result, name="Other").properties == result.properties


def test_a_missing_provider_is_reported_with_how_to_get_one() -> None:
    (text,) = problems_of(declare())

    assert "needs the secrets provider 'dew', which is not installed" in text
    assert "the entry-point group 'kdsl.secrets', a function (key, endpoint, secret_name, version) -> secret" in text


@pytest.mark.usefixtures("dew")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dew_endpoint": "h"}, "no client property is named whose value is a key"),
        ({"dew_fields": "properties.sasl.jaas.config", "dew_secret": "s"}, "is set without"),
        (
            {**OPTIONS, "dew_fields": "properties.sasl.jaas.confg"},
            "names 'properties.sasl.jaas.confg', which is not a client property of the table (did you mean "
            "'properties.sasl.jaas.config'?)",
        ),
    ],
)
def test_an_incomplete_setting_is_reported(options: dict[str, str], reason: str) -> None:
    (text,) = problems_of(declare(options))

    assert reason in text


def test_the_options_have_flink_s_names() -> None:
    keys = {field.name: field.metadata["key"] for field in attrs.fields(KafkaOptions) if field.name.startswith("dew_")}

    assert keys == {
        "dew_endpoint": "dew.endpoint",
        "dew_secret": "dew.csms.secretName",
        "dew_fields": "dew.csms.decrypt.fields",
        "dew_version": "dew.csms.version",
    }
