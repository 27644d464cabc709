"""A registry that does not answer: it is said at once that it is asked again, and for how long."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kdsl.cluster import Registry
from kdsl.registry import RegistryClient, RegistryUnreachableError
from tests.registry.front import Front, serve_schemas

SCHEMAS = serve_schemas({7: '"string"'})
QUICK = {"retries.wait.ms": 20, "retries.max.wait.ms": 20}


def test_the_first_try_that_fails_is_logged_with_the_time_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"max.retries": 4, "http.read.timeout.ms": 9_000, **QUICK}
    with Front(SCHEMAS) as front, caplog.at_level(logging.WARNING, "kdsl.registry"):
        front.fail = [(503, {}), (503, {}), (503, {})]
        RegistryClient(Registry(front.url, settings)).schema(7)

        waits, answers = caplog.messages
        assert waits.startswith(
            f"the registry {front.url} does not answer, asked for the schema with the id 7: HTTP 503; it is asked "
            "again for up to 9 s (the settings max.retries,"
        )
        assert answers == f"the registry {front.url} answers again, after 4 tries for the schema with the id 7"


def test_nothing_is_logged_without_retries_or_failures(caplog: pytest.LogCaptureFixture) -> None:
    with Front(SCHEMAS) as front, caplog.at_level(logging.DEBUG, "kdsl.registry"):
        RegistryClient(Registry(front.url)).schema(7)
        front.fail = [(503, {})]
        with pytest.raises(RegistryUnreachableError, match="asked once for"):
            RegistryClient(Registry(front.url, {"max.retries": 0})).schema(7)

    assert caplog.messages == []


def test_a_registry_that_accepts_connections_and_is_silent_is_asked_for_a_bounded_time() -> None:
    """Each try would take the whole read timeout, and there are 100."""
    ends = threading.Event()
    settings = {"max.retries": 100, "http.read.timeout.ms": 2_500, "retries.wait.ms": 1, "retries.max.wait.ms": 1}
    with Front(lambda _: (503, {"waited": ends.wait(60)})) as front:
        begin = time.monotonic()
        try:
            with pytest.raises(RegistryUnreachableError, match=r"asked (once|2 times) for .*no answer in time"):
                RegistryClient(Registry(front.url, settings)).schema(7)
        finally:
            ends.set()

    assert time.monotonic() - begin < 30
