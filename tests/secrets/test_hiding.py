"""The names by which secrets are recognised, compared with all settings that clients have."""

from __future__ import annotations

from kdsl.client_settings.librdkafka import all_properties
from kdsl.client_settings.settings import TABLE
from kdsl.secrets.hiding import NOT_SECRET, SECRET_SETTINGS, is_secret


def test_the_secret_settings_are_settings() -> None:
    assert {name for name in SECRET_SETTINGS if name not in TABLE} == set()
    assert all(map(is_secret, SECRET_SETTINGS))


def test_a_setting_of_a_client_is_secret_for_its_own_name_and_not_for_resembling_another() -> None:
    """Names that resemble a secret's count as misspelled secrets, unless they are listed."""
    known = {*TABLE, *all_properties()}

    assert known >= NOT_SECRET
    assert not any(map(is_secret, NOT_SECRET))
    assert {row.name for row in TABLE.values() if row.secret} == SECRET_SETTINGS & set(TABLE)
    assert {name for name in known if is_secret(name) and not _is_named_as_secret(name)} == set()


def _is_named_as_secret(name: str) -> bool:
    words = (
        "password",
        "secret",
        "jaas",
        "passphrase",
        "token",
        ".pem",
        "keystore.key",
        "certificate",
        "oauthbearer.config",
    )
    return any(word in name for word in words)
