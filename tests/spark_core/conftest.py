"""What the tests of the core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def active_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets a test end with the session with which it began, because some work in a session of their own."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").createDataFrame([], "a INT")  # which makes the session the active one
