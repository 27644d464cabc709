from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, strategies as st

from kdsl.client_settings.properties import Properties, Value
from kdsl.errors import ResolveError, SecretError
from kdsl.secrets import Secret

JAAS = 'a.PlainLoginModule required username="u" password="HUSH";'
REFERRED = 'a.PlainLoginModule required username="u" password="${env:PW}";'


def test_numbers_and_booleans_become_java_s_strings() -> None:
    settings: dict[str, Value] = {
        "linger.ms": 5,
        "enable.idempotence": True,
        "check.crcs": False,
        "x": 0.25,
        "acks": "all",
    }

    assert dict(Properties(settings)) == {
        "linger.ms": "5",
        "enable.idempotence": "true",
        "check.crcs": "false",
        "x": "0.25",
        "acks": "all",
    }


def test_values_of_other_types_are_refused_all_at_once() -> None:
    with pytest.raises(ResolveError) as e:
        Properties({"a": None, "b": ["x"], "c": "d"})  # type: ignore[dict-item]

    assert str(e.value).splitlines() == [
        "the client properties cannot be read:",
        "  the client property 'a' has a value of the type NoneType; use a string, a number, true or false "
        "[client-property-type]",
        "  the client property 'b' has a value of the type list; use a string, a number, true or false "
        "[client-property-type]",
    ]


def test_equal_properties_have_equal_hashes() -> None:
    one, other = Properties({"a": "1", "sasl.password": "x"}), Properties({"sasl.password": "x", "a": 1})

    assert one == other
    assert hash(one) == hash(other)
    assert one != Properties({"a": "1", "sasl.password": "y"})
    assert one != {"a": "1"}


def test_no_printed_form_shows_a_literal_secret() -> None:
    properties = Properties({"sasl.jaas.config": JAAS, "sasl.password": "HUSH", "a.url": "http://u:HUSH@h/"})

    assert repr(properties) == "Properties({'sasl.jaas.config': '***', 'sasl.password': '***', 'a.url': '***'})"
    assert "HUSH" not in f"{properties} {dict(properties)} {list(properties.values())} {properties['sasl.password']}"
    assert properties.reveal()["sasl.password"] == "HUSH"


def test_references_stay_readable() -> None:
    settings = {"sasl.jaas.config": REFERRED, "ssl.key.password": "${file:/run/pw}"}

    assert Properties(settings).redact() == settings


def test_literal_secrets_are_not_pickled_and_references_are() -> None:
    referred = Properties({"sasl.jaas.config": REFERRED, "linger.ms": 5})

    assert pickle.loads(pickle.dumps(referred)) == referred
    with pytest.raises(SecretError, match="a secret that is written out cannot be pickled; write a reference to it"):
        pickle.dumps(Properties({"sasl.jaas.config": JAAS}))


def test_properties_can_be_copied() -> None:
    properties = Properties({"sasl.jaas.config": JAAS})

    assert copy.copy(properties) == properties
    assert copy.deepcopy(properties) == properties


def test_literals_are_taken_out_and_put_back() -> None:
    properties = Properties({"sasl.jaas.config": JAAS, "linger.ms": "5", "ssl.key.password": "${env:PW}"})

    apart, literals = properties.split("p.")

    assert dict(apart) == {
        "sasl.jaas.config": "${given:p.sasl.jaas.config}",
        "linger.ms": "5",
        "ssl.key.password": "${env:PW}",
    }
    assert literals == {"p.sasl.jaas.config": JAAS}
    assert "HUSH" not in repr(apart)
    assert pickle.loads(pickle.dumps(apart)) == apart
    assert apart.with_literals(literals, "p.") == properties


@given(st.dictionaries(st.sampled_from(["sasl.password", "ssl.keystore.key", "linger.ms", "a"]), st.text()))
def test_splitting_and_joining_is_the_identity(settings: dict[str, str]) -> None:
    properties = Properties(settings)
    apart, literals = properties.split()

    assert apart.with_literals(literals) == properties
    assert not any(isinstance(value, Secret) for value in apart.values())


def test_other_properties_win_when_merged() -> None:
    merged = Properties({"a": "1", "b": "2"}).merge({"b": 3})

    assert merged == Properties({"a": "1", "b": "3"})
