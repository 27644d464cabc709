from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import Postgres, missing


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A Postgres server; tests that need it are skipped where its programs are not there."""
    if reason := missing():
        pytest.skip(reason)
    with Postgres() as server:
        yield server
