"""Java's key stores of the type JKS, read without Java.

Certificates are not encrypted; keys are in Java's own protection (SHA-1 and XOR). A digest that includes the password
detects a store that was changed and a wrong password. As in Java, a trust store may be read without its password; then
nothing is checked.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

import attrs

_MAGIC = 0xFEEDFEED
_JCEKS = 0xCECECECE
_KEY, _CERTIFICATE = 1, 2
_SALT = "Mighty Aphrodite".encode()  # noqa: UP012  # Java's fixed addition to the password
_PROTECTION = bytes.fromhex("2b060104012a02110101")  # 1.3.6.1.4.1.42.2.17.1.1
_LOCK = 20


class JksError(ValueError):
    """A store that cannot be read; the message contains nothing of its content."""


@attrs.frozen(repr=False)
class Entry:
    """One entry of a store, its parts in DER.

    Attributes:
        alias: Its name.
        certificates: A trusted certificate, or a key's chain, the key's own first.
        protected: The key in Java's protection; None for a trusted certificate.
    """

    alias: str
    certificates: tuple[bytes, ...]
    protected: bytes | None = None


def is_jks(data: bytes) -> bool:
    """Whether a file is a store of the type JKS."""
    return data[:4] == struct.pack(">I", _MAGIC)


def is_jceks(data: bytes) -> bool:
    """Whether a file is a store of the type JCEKS."""
    return data[:4] == struct.pack(">I", _JCEKS)


def read_jks(data: bytes, password: str | None) -> list[Entry]:
    """Parse a store, and return its entries, whose keys stay encrypted.

    Args:
        data: The file.
        password: The store's password; None skips the check of the digest.
    """
    try:
        entries, end = _parse_entries(data)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise JksError("the store is damaged: it ends too early") from None
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + _SALT + data[:end]).digest()  # noqa: S324
        if not hmac.compare_digest(digest, data[end : end + _LOCK]):
            raise JksError("the password is wrong, or the store was changed")
    return entries


def decrypt_key(protected: bytes, password: str) -> bytes:
    """Decrypt a key that is in Java's protection, to PKCS#8 in DER."""
    outer = _find_der(protected, 0)
    algorithm = _find_der(protected, outer[0])
    oid = _find_der(protected, algorithm[0])
    if protected[oid[0] : oid[1]] != _PROTECTION:
        raise JksError(
            "its key is not protected as Java protects keys in a JKS store; convert the store to PKCS12 with keytool "
            "-importkeystore"
        )
    body = _find_der(protected, algorithm[1])
    sealed = protected[body[0] : body[1]]
    salt, data, check = sealed[:_LOCK], sealed[_LOCK:-_LOCK], sealed[-_LOCK:]
    secret = _utf16(password)
    stream, last = b"", salt
    while len(stream) < len(data):
        last = hashlib.sha1(secret + last).digest()  # noqa: S324
        stream += last
    key = bytes(a ^ b for a, b in zip(data, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324
        raise JksError("the password of the key is wrong")
    return key


def _parse_entries(data: bytes) -> tuple[list[Entry], int]:
    """Parse the entries of a JKS store; also return the index after the last one."""
    magic, version, number = struct.unpack_from(">III", data)
    if magic != _MAGIC or version not in (1, 2):
        raise JksError("it is not a JKS store")
    at = 12
    entries = []

    def block(form: str) -> bytes:
        nonlocal at
        (size,) = struct.unpack_from(form, data, at)
        start = at + struct.calcsize(form)
        at = start + size
        if at > len(data):
            raise IndexError
        return data[start:at]

    def certificate() -> bytes:
        if version == 2:
            block(">H")  # its type, which is X.509
        return block(">I")

    for _ in range(number):
        (kind,) = struct.unpack_from(">I", data, at)
        at += 4
        alias = block(">H").decode("utf-8", errors="replace")
        at += 8  # the date
        if kind == _CERTIFICATE:
            entries.append(Entry(alias, (certificate(),)))
        elif kind == _KEY:
            protected = block(">I")
            (chain,) = struct.unpack_from(">I", data, at)
            at += 4
            entries.append(Entry(alias, tuple(certificate() for _ in range(chain)), protected))
        else:
            raise JksError("the store is damaged: an entry is neither a key nor a certificate")
    return entries, at


def _find_der(data: bytes, at: int) -> tuple[int, int]:
    """Find the start and end of the content of the DER value at an index."""
    try:
        size, start = data[at + 1], at + 2
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(data[at + 2 : start], "big")
    except IndexError:
        raise JksError("the key in the store is damaged") from None
    return start, start + size


def _utf16(text: str) -> bytes:
    """A password as Java digests it: UTF-16, big-endian, without a byte order mark."""
    return text.encode("utf-16-be")
