"""Java's key stores as PEM, in the process that makes a client.

What a store is shows in its first bytes, not in its name: today's keytool makes PKCS12 whatever the file is called, and
Java reads it under either type.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from kdsl.client.jks import JksError, is_jceks, is_jks, open_key, read_jks
from kdsl.client.key_files import KeyFileError, local_path
from kdsl.errors import KdslError

if TYPE_CHECKING:
    from cryptography import x509


Which = Literal["truststore", "keystore"]


class StoreError(KdslError):
    """A key store that cannot be read; the text names it and the reason, never a password."""


@attrs.frozen(repr=False)
class Store:
    """A Java key store that librdkafka cannot read.

    Attributes:
        which: Whether it holds the authorities that are trusted or the client's own key.
        location: Its path.
        kind: ``JKS`` or ``PKCS12``.
        password: Its password, where one is given.
        key_password: The password of the key within it, where it is another.
    """

    which: Which
    location: str
    kind: str
    password: str | None = None
    key_password: str | None = None


@attrs.frozen(repr=False)
class Pem:
    """What was in a store, as PEM texts: certificates, and the key where it is a key store's (not encrypted)."""

    certificates: str
    key: str = ""


def read_store(store: Store) -> Pem:
    """What is in a store.

    Raises:
        StoreError: It is not there, it cannot be read, its password is another, or it does not hold what it should.
    """
    name = f"'ssl.{store.which}.location' {store.location}"
    try:
        path = Path(local_path(store.location))
        state = path.stat()
        return _read(store, str(path), state.st_mtime_ns, state.st_size)
    except (JksError, KeyFileError) as e:
        raise StoreError(f"{name} cannot be read: {e}") from None
    except OSError as e:
        raise StoreError(f"{name} cannot be read: {e.strerror}") from None


@lru_cache(maxsize=64)
def _read(store: Store, path: str, *_: int) -> Pem:
    data = Path(path).read_bytes()
    trusted = store.which == "truststore"
    if is_jks(data):
        pem = _jks_trusted(data, store) if trusted else _jks_key(data, store)
    elif is_jceks(data):
        raise JksError(
            "it is a JCEKS store; convert it with keytool -importkeystore -deststoretype PKCS12, and write its path"
        )
    elif b"-----BEGIN" in data[:4096]:
        raise JksError(f"it is PEM; write ssl.{store.which}.type=PEM")
    else:
        pem = _pkcs12(data, store, trusted=trusted)
    if not pem.certificates:
        raise JksError("it holds no certificate of an authority" if trusted else "it holds no certificate of the key")
    return pem


def _jks_trusted(data: bytes, store: Store) -> Pem:
    # Java trusts a key's own certificate, too.
    return Pem("".join(_certificate(entry.certificates[0]) for entry in read_jks(data, store.password)))


def _jks_key(data: bytes, store: Store) -> Pem:
    if store.password is None:
        raise JksError("a JKS store with a key has a password; write ssl.keystore.password")
    keys = [entry for entry in read_jks(data, store.password) if entry.protected is not None]
    if not keys:
        raise JksError("it holds no key")
    key = open_key(keys[0].protected or b"", store.key_password or store.password)
    return Pem("".join(map(_certificate, keys[0].certificates)), _block("PRIVATE KEY", key))


def _pkcs12(data: bytes, store: Store, *, trusted: bool) -> Pem:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        found = pkcs12.load_pkcs12(data, None if store.password is None else store.password.encode())
    except ValueError:
        if store.password is None:
            raise JksError(f"it has a password, or is no store; write ssl.{store.which}.password") from None
        raise JksError("the password is wrong, or it is neither a JKS nor a PKCS12 store") from None
    others = [one.certificate for one in found.additional_certs]
    own = found.cert.certificate if found.cert else None
    if trusted:
        return Pem("".join(_text(one) for one in ([own] if own else []) + others))
    if found.key is None:
        raise JksError("it holds no key that this password opens")
    key = found.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()
    return Pem("".join(_text(one) for one in _chain(own, others)), key)


def _chain(own: x509.Certificate | None, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """A certificate and those above it, in their order."""
    chain = [own] if own else []
    left = list(others)
    while chain and (above := next((one for one in left if one.subject == chain[-1].issuer), None)):
        chain.append(above)
        left.remove(above)
    return chain


def _certificate(der: bytes) -> str:
    return _block("CERTIFICATE", der)


def _text(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _block(label: str, der: bytes) -> str:
    data = base64.b64encode(der).decode()
    lines = "\n".join(data[at : at + 64] for at in range(0, len(data), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
