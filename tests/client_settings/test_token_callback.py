from __future__ import annotations

import base64
import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kdsl.client_settings import machine
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.to_java import java_settings
from kdsl.client_settings.to_librdkafka import TOKEN_CALLBACK, librdkafka_settings
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.client_settings.token_errors import TokenError
from tests.client_settings.installed import create

OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
EXPIRES = int(time.time()) + 3600
ASKED: list[Mapping[str, str]] = []


def jwt(**claims: object) -> str:
    return f"aGVhZA.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


JWT = jwt(exp=EXPIRES, sub="orders")


def make(**options: str) -> str:
    ASKED.append(options)
    return JWT


def make_anonymous() -> str:
    return jwt(exp=EXPIRES)


def no_jwt() -> str:
    return "HUSH"


def no_claims() -> str:
    return "aGVhZA.SFVTSA.c2ln"


def endless() -> str:
    return jwt(sub="HUSH")


def make_pair() -> tuple[str, int]:
    return "HUSH", EXPIRES


def make_expired() -> str:
    return jwt(sub="HUSH", exp=1)


def failing() -> str:
    raise RuntimeError("HUSH")


def here(name: str) -> str:
    return f"{__name__}:{name}"


def test_a_function_gets_the_options_and_its_jwt_says_who_logs_in_until_when() -> None:
    callback = TokenCallback(here("make"), {"scope": "orders"}, {"traceId": "7"})

    assert callback() == (JWT, EXPIRES, "orders", {"traceId": "7"})
    assert ASKED[-1] == {"scope": "orders"}
    assert TokenCallback(here("make_anonymous"))()[2] == here("make_anonymous")


def test_callbacks_for_the_same_tokens_are_equal_and_show_no_option() -> None:
    """Pools compare settings."""
    one, other = (TokenCallback(here("make"), {"password": "HUSH"}) for _ in range(2))

    assert (one, hash(one)) == (other, hash(other))
    assert one != TokenCallback(here("make"), {})
    assert "HUSH" not in repr(one)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_jwt", "returned no JWT"),
        ("no_claims", "returned no JWT"),
        ("make_pair", "returned no JWT"),
        ("endless", "returned a JWT without the time 'exp'"),
        ("make_expired", "returned a JWT that has expired"),
        ("failing", "failed with RuntimeError"),
    ],
)
def test_a_function_without_a_token_is_named_in_error_and_log_but_not_what_it_says(
    name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with pytest.raises(TokenError) as e:
        TokenCallback(here(name))()

    assert str(e.value) == f"the token provider {here(name)!r} {reason}"
    assert caplog.messages == [str(e.value)]


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        ("no.such.module:make", "cannot be imported"),
        (here("mak"), "has no function 'mak' (did you mean 'make'?)"),
        (here("failing"), "failed with RuntimeError"),
        ("FILE:/no/such/file", "FILE:/no/such/file is not a file on"),
    ],
)
def test_a_client_without_a_first_token_is_not_created(provider: str, reason: str) -> None:
    problems = librdkafka_settings(
        {**OAUTH, "sasl.oauthbearer.token.provider": provider}, "consumer", machine=Machine()
    ).problems

    assert [(reason in problem.message, problem.code) for problem in problems] == [(True, "sasl-login")]


def test_the_token_of_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "the token"
    file.write_text(f"{JWT}\n")
    settings = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": file.as_uri().replace("file:", "FILE:")}
    callback = librdkafka_settings(settings, "consumer", machine=Machine()).client_config()[TOKEN_CALLBACK]

    assert callback(None)[0] == JWT
    file.write_text(make_anonymous())
    assert callback(None)[0] == make_anonymous()


def test_clients_call_for_tokens_and_send_the_extensions() -> None:
    settings = {
        **OAUTH,
        "sasl.oauthbearer.token.provider": here("make"),
        "sasl.oauthbearer.extensions": "traceId=7,cluster=a",
        "sasl.jaas.config": "a.b.OAuthBearerLoginModule required scope=orders;",
    }
    translated = librdkafka_settings(settings, "producer", machine=Machine())
    config = translated.client_config()

    assert translated.problems == ()
    assert config[TOKEN_CALLBACK](None) == (JWT, EXPIRES, "orders", {"traceId": "7", "cluster": "a"})
    assert ASKED[-1] == {"scope": "orders"}
    assert create("producer", config) == []


def test_a_provider_that_fails_while_its_last_token_is_valid_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pooled clients have that token, and others call for their own."""
    settings = {**OAUTH, "sasl.oauthbearer.token.provider": here("make"), "client.id": "pooled"}
    monkeypatch.setattr(machine, "_first_tokens", {})
    ASKED.clear()

    def translate(seconds: float) -> list[str]:
        now = time.time() + seconds
        with monkeypatch.context() as clock:
            clock.setattr(time, "time", lambda: now)
            return [problem.code for problem in librdkafka_settings(settings, "producer", machine=Machine()).problems]

    assert [translate(seconds) for seconds in (0, 1, 2)] == [[], [], []]
    assert len(ASKED) == 1
    monkeypatch.setattr(sys.modules[__name__], "make", failing)
    assert translate(120) == []
    assert translate(EXPIRES + 1 - time.time()) == ["sasl-login"]


def test_nothing_is_created_while_planning() -> None:
    translated = librdkafka_settings({**OAUTH, "sasl.oauthbearer.token.provider": "no.such:module"}, "consumer")

    assert translated.problems == ()
    assert TOKEN_CALLBACK not in translated.client_config()


def test_the_transport_jvm_refuses_a_python_function() -> None:
    problems = java_settings({**OAUTH, "sasl.oauthbearer.token.provider": here("make")}, "consumer").problems

    assert [problem.code for problem in problems] == ["client-setting-refused"]
    assert "use transport='librdkafka'" in problems[0].fix
