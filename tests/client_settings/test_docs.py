from __future__ import annotations

from docs.generate.client_settings import client_settings_page
from kdsl.client_settings.to_librdkafka import list_settings


def test_the_page_names_every_setting() -> None:
    page = client_settings_page()

    assert [name for name in list_settings() if f"`{name}`" not in page] == []
