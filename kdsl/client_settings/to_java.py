"""Client properties as Java's clients take them, for the transport ``jvm``.

The names stay. kdsl's own settings are removed, values get Java's spelling, shaded login modules are replaced by
Kafka's, and librdkafka's names are replaced by Java's if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import attrs

from kdsl.client_settings import librdkafka
from kdsl.client_settings.cloud_logins import AWS_MECHANISM
from kdsl.client_settings.draft import Resolve, SettingsDraft, draft_settings, refusal
from kdsl.client_settings.java_login import add_java_login
from kdsl.client_settings.key_files import KeyFileError, pem_blocks, scheme
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import Client
from kdsl.client_settings.sasl import MECHANISMS, PROVIDER, check_missing_mechanism
from kdsl.client_settings.settings import TABLE
from kdsl.client_settings.stores import StoreError
from kdsl.errors import Problem
from kdsl.extras import explain_missing_package
from kdsl.secrets import has_reference
from kdsl.secrets.hiding import redact

_MECHANISM = "sasl.mechanism"
_ENDPOINT = "ssl.endpoint.identification.algorithm"
KEY, CHAIN, LOCATION, PASSWORD = (
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.location", "ssl.key.password"
)  # fmt: skip
_STORE_TYPE = "ssl.keystore.type"
_PEM = {
    "ssl.truststore.location": {"ssl.truststore.certificates": "CERTIFICATE"},
    "ssl.keystore.location": {"ssl.keystore.key": "PRIVATE KEY", "ssl.keystore.certificate.chain": "CERTIFICATE"},
}
"""The settings for the content of a PEM store, instead of its location."""


@attrs.frozen
class JavaSettings:
    """What client properties mean to Java's clients.

    Attributes:
        settings: The properties for the client, by Java's names.
        problems: Everything that is wrong (errors) or ignored (warnings).
        system: The system properties that the client's JVM must have, such as where krb5.conf is.
    """

    settings: Mapping[str, str] = attrs.field(repr=lambda m: repr(redact(m)))
    problems: tuple[Problem, ...] = ()
    system: Mapping[str, str] = attrs.field(factory=dict, repr=lambda m: repr(redact(m)))


def java_settings(
    properties: Mapping[str, str], client: Client, resolve: Resolve | None = None, machine: Machine | None = None
) -> JavaSettings:
    """Translate client properties for a Java client; mistakes, also in references, become problems of the result.

    Args:
        properties: Java's names (or librdkafka's) and their values, without the prefix ``properties.``.
        client: The kind of client.
        resolve: Replaces references to secrets; without it they stay unchanged.
        machine: Fetches key files that are given by a URL, and reads a PEM key store whose key Java cannot open;
            without it no file is read.
    """
    draft = draft_settings(properties, client, resolve)
    for name, text in draft.java.items():
        row = TABLE[name]
        if name == PROVIDER:
            draft.add_error(
                "client-setting-refused",
                f"{PROVIDER!r} cannot be set with transport='jvm': its tokens are created in Python",
                "write sasl.login.callback.handler.class with a Java class, or use transport='librdkafka'",
                property=PROVIDER,
            )
        elif row.act == "owned":
            draft.problems.append(refusal(row))
        elif row.act != "connector":
            draft.settings[name] = text
    # Java's clients pass unknown names on to the classes that they load.
    draft.settings.update(draft.unknown)
    if draft.settings.get(_ENDPOINT, "").lower() == "none":
        draft.settings[_ENDPOINT] = ""
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        location = draft.settings.get(name, "")
        if not draft.add_unreachable("tls-store", name, location) and machine is not None and scheme(location):
            _fetch_store(draft, machine, name, location)
    _open_key(draft, machine)
    librdkafka_only = dict(draft.librdkafka)
    if draft.settings.get(_MECHANISM, "").upper() in (*MECHANISMS, "GSSAPI", AWS_MECHANISM):
        draft.settings[_MECHANISM] = draft.settings[_MECHANISM].upper()
    missing = draft.java.get("security.protocol", "").startswith("SASL_") and check_missing_mechanism(draft)
    system = {} if missing else add_java_login(draft, librdkafka_only, machine)
    _warn_of_librdkafka_names(draft, librdkafka_only)
    _keep_order(draft)
    return JavaSettings(MappingProxyType(draft.settings), tuple(draft.problems), system)


def _fetch_store(draft: SettingsDraft, machine: Machine, name: str, location: str) -> None:
    """Fetch a store that is given by a URL: PEM goes into the settings, other stores into a temporary file.

    Of a ``file:`` URL only the path of the file is set. If it cannot be fetched, a problem is recorded, and the
    location stays; PEM without a block that is needed is a problem, too.
    """
    kind = draft.settings.get(name.replace("location", "type"), "").upper()
    if kind != "PEM" or scheme(location) == "file":
        draft.settings[name] = draft.attempt(partial(machine.find_file, location)) or location
        return
    content = draft.attempt(partial(machine.read_file, location))
    if content is None:
        return
    del draft.settings[name]
    for setting, ending in _PEM[name].items():
        if pem := pem_blocks(content.decode(errors="replace"), ending):
            draft.settings[setting] = pem
        else:
            draft.add_error(
                "tls-pem", f"the file at {location} holds no PEM block {ending}", "write the address of another", name
            )


def _warn_of_librdkafka_names(draft: SettingsDraft, librdkafka_only: Mapping[str, str]) -> None:
    """Record a warning about each property, which only librdkafka has; the fix names that of Java, if there is one."""
    for key in librdkafka_only:
        java = librdkafka.JAVA.get(key)
        draft.add_warning(
            "client-setting-dropped",
            f"{key!r} has no effect with transport='jvm': only librdkafka has it",
            f"write {java}" if java else "remove it, or read and write with transport='librdkafka'",
            property=key,
        )


def _keep_order(draft: SettingsDraft) -> None:
    """Allow a producer whose idempotence the user has turned off only one request in flight, unless a number is set.

    This preserves the order on both transports.
    """
    flight = "max.in.flight.requests.per.connection"
    if draft.client == "producer" and flight not in draft.java and draft.java.get("enable.idempotence") == "false":
        draft.settings[flight] = "1"


def _open_key(draft: SettingsDraft, machine: Machine | None) -> None:
    """Convert the key of a PEM key store to PKCS#8 within the settings, if Java cannot open it.

    librdkafka opens every key that OpenSSL can. Java's clients need PKCS#8. They open encrypted keys of the old kinds
    only, not PBES2, which today's tools write. Such a key is decrypted here, in the process that creates the client,
    and is passed on like the other secrets of the settings, in which the key and its certificates replace a location. A
    password of the key is removed. A key that cannot be opened is recorded as a problem; without a machine (while
    planning) nothing is done.
    """
    settings = draft.settings
    if machine is None or settings.get(_STORE_TYPE, "").upper() != "PEM":
        return
    location, password = settings.get(LOCATION), settings.get(PASSWORD)
    text, name = settings.get(KEY), f"{KEY!r}"
    if text is None and location is not None:
        text, name = draft.attempt(partial(_read_pem, machine, location)), f"{LOCATION!r} {location}"
    if text is None or has_reference(text) or has_reference(password or ""):
        return
    keys = pem_blocks(text, "PRIVATE KEY")
    plain = keys.startswith("-----BEGIN PRIVATE KEY-----")
    if not keys or (plain and password is None):
        return
    decrypted = keys if plain else draft.attempt(partial(_decrypt_key, keys, password, name))
    if decrypted is None:
        return
    settings.pop(PASSWORD, None)  # Java assumes that a key with a password is encrypted
    if KEY in settings or not plain:
        settings[KEY] = decrypted
    if LOCATION in settings and not plain:
        settings[CHAIN] = pem_blocks(text, "CERTIFICATE")
        del settings[LOCATION]


def _read_pem(machine: Machine, location: str) -> str | None:
    """Read a PEM file as text; None if it is not on this machine (with Spark Connect, the server may have it).

    A file that no fetcher can fetch counts as such.
    """
    try:
        return machine.read_file(location).decode()
    except (
        KeyFileError
    ):  # with Spark Connect only the server may have the file; if it is missing there, Java reports it
        return None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not text"
        raise StoreError(f"{LOCATION!r} {location} cannot be read: {reason}") from None


def _decrypt_key(keys: str, password: str | None, name: str) -> str:
    """Decrypt a private key in PEM to PKCS#8 in PEM; a password that the key does not need is ignored."""
    with explain_missing_package("a private key in PEM for a Java client"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(keys.encode(), None if password is None else password.encode())
    except TypeError:  # a password is missing, or is not needed
        if password is not None:
            return _decrypt_key(keys, None, name)
        raise StoreError(f"{name} has an encrypted key, but {PASSWORD!r} is missing") from None
    except (ValueError, UnsupportedAlgorithm):
        raise StoreError(f"{name} has a key that cannot be opened: {PASSWORD!r} is wrong, or it is not a key") from None
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()
