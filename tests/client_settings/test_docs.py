from __future__ import annotations

from docs.generate.client_settings import client_settings_page
from kdsl.client_settings.librdkafka import all_properties
from kdsl.client_settings.settings import TABLE


def test_the_page_names_every_setting() -> None:
    page = client_settings_page()

    assert [name for name in (*TABLE, *all_properties()) if f"`{name}`" not in page] == []
