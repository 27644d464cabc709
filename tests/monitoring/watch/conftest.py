"""One browser for the tests of the page, which wait for what it shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Page, open_browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Page]:
    with open_browser() as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """The page of the browser, wide and light, with nothing noted."""
    browser.open("about:blank")
    browser.look()
    browser.requests.clear()
    browser.complaints.clear()
    yield browser
    browser.open("about:blank")
