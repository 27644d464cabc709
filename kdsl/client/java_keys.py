"""The client's own key in PEM, as Java's clients can open it.

librdkafka opens every key that OpenSSL does. Java's client takes PKCS#8 alone, and of what is encrypted only the old
ways, not PBES2, which is what every tool of today writes. So such a key is opened here, in the process that makes the
client, and is handed on like the other secrets of the settings.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kdsl.client.draft import Draft
from kdsl.client.key_files import KeyFileError
from kdsl.client.machine import Machine
from kdsl.client.pem import blocks
from kdsl.client.stores import StoreError
from kdsl.secrets import has_reference

KEY, CHAIN, LOCATION, PASSWORD = (
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.location", "ssl.key.password"
)  # fmt: skip
_KIND = "ssl.keystore.type"


def open_key(draft: Draft, machine: Machine | None) -> None:
    """Put the key of a PEM key store, where it is one that Java cannot open, into the settings as PKCS#8.

    Args:
        draft: The translation so far, with Java's names.
        machine: Finds key files; without it none is looked at, and nothing is done.
    """
    settings = draft.settings
    if machine is None or settings.get(_KIND, "").upper() != "PEM":
        return
    location, password = settings.get(LOCATION), settings.get(PASSWORD)
    text, name = settings.get(KEY), f"{KEY!r}"
    if text is None and location is not None:
        text, name = draft.tried(partial(_text, machine, location)), f"{LOCATION!r} {location}"
    if text is None or has_reference(text) or has_reference(password or ""):
        return
    keys = blocks(text, "PRIVATE KEY")
    plain = keys.startswith("-----BEGIN PRIVATE KEY-----")
    if not keys or (plain and password is None):
        return
    opened = keys if plain else draft.tried(partial(_opened, keys, password, name))
    if opened is None:
        return
    settings.pop(PASSWORD, None)  # Java takes a key with a password for one that is encrypted
    if KEY in settings or not plain:
        settings[KEY] = opened
    if LOCATION in settings and not plain:
        settings[CHAIN] = blocks(text, "CERTIFICATE")
        del settings[LOCATION]


def _text(machine: Machine, location: str) -> str | None:
    try:
        return Path(machine.path(location)).read_text(encoding="utf-8")
    except KeyFileError:  # of Spark Connect, the file may be the server's alone; where it lacks, Java says so
        return None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is no text"
        raise StoreError(f"{LOCATION!r} {location} cannot be read: {reason}") from None


def _opened(keys: str, password: str | None, name: str) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(keys.encode(), None if password is None else password.encode())
    except TypeError:  # of two: a password that is missing, and one that is not needed
        if password is not None:
            return _opened(keys, None, name)
        raise StoreError(f"{name} has an encrypted key, and {PASSWORD!r} is not given") from None
    except (ValueError, UnsupportedAlgorithm):
        raise StoreError(f"{name} has a key that cannot be opened: {PASSWORD!r} is wrong, or it is no key") from None
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()
