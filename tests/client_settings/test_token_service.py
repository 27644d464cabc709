from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kdsl.client_settings.machine import ThisMachine
from kdsl.client_settings.to_java import java_settings
from kdsl.client_settings.to_librdkafka import consumer_settings, producer_settings
from kdsl.client_settings.token_errors import TokenError
from kdsl.client_settings.token_service import Endpoint, serve_tokens
from tests.client_settings.installed import create

JWT = "aGVhZA.Ym9keQ.c2ln"
OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
ASKED: list[Mapping[str, str]] = []


def make(**options: str) -> str:
    ASKED.append(options)
    return JWT


def no_jwt() -> str:
    return "HUSH"


def failing() -> str:
    raise RuntimeError("HUSH")


def ask(at: Endpoint, secret: str | None = None, path: str = "") -> tuple[int, dict[str, Any]]:
    login = base64.b64encode(f"{at.id}:{secret or at.secret}".encode()).decode()
    request = urllib.request.Request(
        at.url + path, data=b"grant_type=client_credentials", headers={"Authorization": f"Basic {login}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.loads(e.read())


def here(name: str) -> str:
    return f"{__name__}:{name}"


def test_a_function_s_tokens_are_served_to_who_knows_the_secret() -> None:
    at = serve_tokens(here("make"), {"scope": "orders"})

    assert at.url.startswith("http://127.0.0.1:")
    assert ask(at) == (200, {"access_token": JWT, "token_type": "Bearer"})
    assert ASKED[-1] == {"scope": "orders"}
    assert ask(at, secret="another")[0] == 401
    assert ask(at, path="x")[0] == 401
    assert at.secret not in repr(at)
    assert serve_tokens(here("make"), {"scope": "orders"}) == at


@pytest.mark.parametrize(("name", "reason"), [("no_jwt", "returned no JWT"), ("failing", "failed with RuntimeError")])
def test_a_function_that_returns_no_token_is_named_without_its_message(name: str, reason: str) -> None:
    status, message = ask(serve_tokens(here(name), {}))

    assert status == 400
    assert message["error"] == f"the token provider {here(name)!r} {reason}"


@pytest.mark.parametrize(
    ("provider", "reason"),
    [("no.such.module:make", "cannot be imported"), (here("mak"), "has no function 'mak' (did you mean 'make'?)")],
)
def test_a_missing_function_is_reported(provider: str, reason: str) -> None:
    with pytest.raises(TokenError) as e:
        serve_tokens(provider, {})

    assert reason in str(e.value)
    problems = consumer_settings({**OAUTH, "sasl.oauthbearer.token.provider": provider}, machine=ThisMachine()).problems
    assert [reason in problem.message for problem in problems] == [True]


def test_the_token_of_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "the token"
    file.write_text(f"{JWT}\n")
    at = serve_tokens(file.as_uri().replace("file:", "FILE:"), {})

    assert ask(at)[1]["access_token"] == JWT
    file.write_text("bmV3.bmV3.bmV3")
    assert ask(at)[1]["access_token"] == "bmV3.bmV3.bmV3"


def test_librdkafka_requests_them_like_from_an_identity_provider() -> None:
    settings = {
        **OAUTH,
        "sasl.oauthbearer.token.provider": here("make"),
        "sasl.jaas.config": "a.b.OAuthBearerLoginModule required scope=orders;",
    }
    translated = producer_settings(settings, machine=ThisMachine())
    at = serve_tokens(here("make"), {"scope": "orders"})

    assert translated.problems == ()
    assert translated.settings == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": at.url,
        "sasl.oauthbearer.client.id": at.id,
        "sasl.oauthbearer.client.secret": at.secret,
    }
    assert create("producer", translated.client_config()) == []
    assert at.secret not in repr(translated)


def test_nothing_is_served_while_planning() -> None:
    translated = consumer_settings({**OAUTH, "sasl.oauthbearer.token.provider": "no.such:module"})

    assert translated.problems == ()


def test_the_transport_jvm_refuses_a_python_function() -> None:
    problems = java_settings({**OAUTH, "sasl.oauthbearer.token.provider": here("make")}, "consumer").problems

    assert [problem.code for problem in problems] == ["client-setting-refused"]
    assert "use transport='librdkafka'" in problems[0].fix
