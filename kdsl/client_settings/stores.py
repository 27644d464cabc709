"""Java's key stores as PEM, in the process that creates a client.

The first bytes of a store show its type, not its name: today's keytool writes PKCS12 whatever the file is called, and
Java reads it under either type.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import attrs

from kdsl.client_settings.jks import JksError, decrypt_key, is_jceks, is_jks, read_jks
from kdsl.client_settings.key_files import KeyFileError, read_file
from kdsl.errors import KdslError
from kdsl.extras import explain_missing_package

if TYPE_CHECKING:
    from cryptography import x509


Which = Literal["truststore", "keystore"]


class StoreError(KdslError):
    """A key store that cannot be read; the message contains its name and the reason, never a password."""


@attrs.frozen(repr=False)
class Store:
    """A Java key store that librdkafka cannot read.

    Attributes:
        which: Whether it contains the trusted authorities or the client's own key.
        location: Its path.
        kind: ``JKS`` or ``PKCS12``.
        password: Its password, if it is set.
        key_password: The password of the key in it, if it differs.
    """

    which: Which
    location: str
    kind: str
    password: str | None = None
    key_password: str | None = None


@attrs.frozen(repr=False)
class Pem:
    """The content of a store as PEM: certificates, and the unencrypted key if it is a key store."""

    certificates: str
    key: str = ""


def read_store(store: Store) -> Pem:
    """Read a store; its parsed content, also its key, stays in memory (`_read`)."""
    name = f"'ssl.{store.which}.location' {store.location}"
    try:
        return _read(store, read_file(store.location))
    except (JksError, KeyFileError) as e:
        raise StoreError(f"{name} cannot be read: {e}") from None
    except OSError as e:
        raise StoreError(f"{name} cannot be read: {e.strerror}") from None


@lru_cache(maxsize=64)
def _read(store: Store, data: bytes) -> Pem:
    """Read the content of a store as PEM; results are cached."""
    trusted = store.which == "truststore"
    if is_jks(data):
        pem = _read_jks_certificates(data, store) if trusted else _read_jks_key(data, store)
    elif is_jceks(data):
        raise JksError(
            "it is a JCEKS store; convert it with keytool -importkeystore -deststoretype PKCS12, and write its path"
        )
    elif b"-----BEGIN" in data[:4096]:
        raise JksError(f"it is PEM; write ssl.{store.which}.type=PEM")
    else:
        pem = _read_pkcs12(data, store, trusted=trusted)
    if not pem.certificates:
        raise JksError(
            "it contains no certificate of an authority" if trusted else "it contains no certificate of the key"
        )
    return pem


def _read_jks_certificates(data: bytes, store: Store) -> Pem:
    """Read the trusted certificates from a JKS store, that of a key among them, as in Java; errors as in `read_jks`.

    A key without a certificate is skipped.
    """
    first = (der for entry in read_jks(data, store.password) for der in entry.certificates[:1])
    return Pem("".join(map(_format_certificate, first)))


def _read_jks_key(data: bytes, store: Store) -> Pem:
    """Read the first key and its certificates from a JKS store."""
    if store.password is None:
        raise JksError("a JKS store with a key has a password; set ssl.keystore.password")
    keys = [entry for entry in read_jks(data, store.password) if entry.protected is not None]
    if not keys:
        raise JksError("it contains no key")
    key = decrypt_key(keys[0].protected or b"", store.key_password or store.password)
    return Pem("".join(map(_format_certificate, keys[0].certificates)), _format_block("PRIVATE KEY", key))


def _read_pkcs12(data: bytes, store: Store, *, trusted: bool) -> Pem:
    """Read the certificates, and the key unless authorities are wanted, from a PKCS12 store."""
    with explain_missing_package("a PKCS12 store"):
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store_content = pkcs12.load_pkcs12(data, None if store.password is None else store.password.encode())
    except ValueError:
        if store.password is None:
            raise JksError(f"it has a password, or it is not a store; set ssl.{store.which}.password") from None
        raise JksError("the password is wrong, or it is neither a JKS nor a PKCS12 store") from None
    others = [one.certificate for one in store_content.additional_certs]
    own = store_content.cert.certificate if store_content.cert else None
    if trusted:
        return Pem("".join(_to_pem(one) for one in ([own] if own else []) + others))
    if store_content.key is None:
        raise JksError("it contains no key that this password opens")
    key = store_content.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()
    return Pem("".join(_to_pem(one) for one in _chain(own, others)), key)


def _chain(own: x509.Certificate | None, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """A certificate followed by its issuers (by name) among the others, in order; empty for None.

    Certificates that are not in the chain are left out.
    """
    chain = [own] if own else []
    left = list(others)
    while chain and (above := next((one for one in left if one.subject == chain[-1].issuer), None)):
        chain.append(above)
        left.remove(above)
    return chain


def _format_certificate(der: bytes) -> str:
    """A certificate in DER as a block of PEM."""
    return _format_block("CERTIFICATE", der)


def _to_pem(certificate: x509.Certificate) -> str:
    """Write a certificate as a PEM block."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _format_block(label: str, der: bytes) -> str:
    """Write DER as a PEM block with this label."""
    data = base64.b64encode(der).decode()
    lines = "\n".join(data[at : at + 64] for at in range(0, len(data), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
