"""Java's ``ssl.*`` settings, read together, as librdkafka's.

librdkafka reads PEM, and a key from PKCS12. A JKS store (and a PKCS12 trust store) must be made PEM: a `Stores` that
the caller hands in does it; without one the problem says how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, Protocol

import attrs

from kdsl.client.draft import Draft
from kdsl.client.pem import blocks
from kdsl.errors import nearest
from kdsl.secrets import has_reference

_PROTOCOLS = ("TLSv1.3", "TLSv1.2", "TLSv1.1", "TLSv1", "SSLv3", "SSLv2", "TLS", "SSL")
_NEW = frozenset({"TLSv1.3", "TLSv1.2", "TLS"})
_JVM = "use Spark's own Kafka connector"

Which = Literal["truststore", "keystore"]


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


class Stores(Protocol):
    """Makes PEM of a Java key store."""

    def __call__(self, store: Store) -> Pem:
        """Read a store; raise KdslError, without any password in its text, where that fails."""
        ...


def tls(draft: Draft, stores: Stores | None) -> None:
    """Translate the settings of TLS."""
    names = [name for name in draft.given if name.startswith("ssl.")]
    protocol = draft.given.get("security.protocol", "PLAINTEXT")
    if draft.hidden("security.protocol") or not names:
        return
    if protocol not in ("SSL", "SASL_SSL"):
        draft.warn(
            "client-setting-unused",
            f"{', '.join(map(repr, names))} without effect, since 'security.protocol' is {protocol!r}",
            "write security.protocol=SSL or SASL_SSL, or remove them",
        )
        return
    _truststore(draft, stores)
    _keystore(draft, stores)
    _endpoint(draft)
    _protocols(draft)
    _ciphers(draft)


def _kind(draft: Draft, which: Which) -> str:
    given = draft.given.get(f"ssl.{which}.type")
    location = draft.given.get(f"ssl.{which}.location", "").lower()
    return given or ("PKCS12" if location.endswith((".p12", ".pfx")) else "JKS")


def _location(draft: Draft, which: Which, texts: Iterable[str]) -> str | None:
    """The path of a store's file, after everything that Java refuses is told; None where there is none to read."""
    kind, name = _kind(draft, which), f"ssl.{which}.location"
    location = draft.given.get(name)
    inline = [text for text in texts if text in draft.given]
    if inline and kind != "PEM" and not draft.hidden(f"ssl.{which}.type"):
        draft.tell(
            "tls-store",
            f"{inline[0]!r} holds PEM, but the type of the {which} is {kind}",
            f"write ssl.{which}.type=PEM",
        )
    elif inline and location is not None:
        draft.tell("tls-store", f"{name!r} and {inline[0]!r} are both given", "keep one of the two")
    password = f"ssl.{which}.password"
    if password in draft.given:
        if kind == "PEM":
            draft.tell("tls-store", f"{password!r} is given, but a PEM {which} has no password", "remove it")
        elif location is None:
            draft.tell("tls-store", f"{password!r} is given without a store", f"write {name}, or remove it")
    if location is None or draft.hidden(name) or draft.hidden(f"ssl.{which}.type"):
        return None
    if scheme := re.match(r"([A-Za-z][\w+.-]+)://", location):
        draft.tell(
            "tls-store",
            f"{name!r} is {location!r}, which is no file of this machine ({scheme[1]}://)",
            "copy the file to the driver and to every executor and write its path",
        )
        return None
    return location


def _truststore(draft: Draft, stores: Stores | None) -> None:
    text = "ssl.truststore.certificates"
    location = _location(draft, "truststore", [text])
    if text in draft.given:
        _put_pem(draft, "ssl.ca.pem", text, "CERTIFICATE")
    if location is None:
        return
    kind = _kind(draft, "truststore")
    if kind == "PEM":
        draft.put("ssl.ca.location", location, "ssl.truststore.location")
    elif pem := _converted(
        draft, stores, Store("truststore", location, kind, _given(draft, "ssl.truststore.password"))
    ):
        draft.put("ssl.ca.pem", pem.certificates, "ssl.truststore.location")


def _keystore(draft: Draft, stores: Stores | None) -> None:
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    location = _location(draft, "keystore", [key, chain])
    if (key in draft.given) != (chain in draft.given):
        given, missing = (key, chain) if key in draft.given else (chain, key)
        draft.tell("tls-store", f"{given!r} is given without {missing!r}", f"write {missing} too")
    if key in draft.given:
        _put_pem(draft, "ssl.key.pem", key, "PRIVATE KEY")
    if chain in draft.given:
        _put_pem(draft, "ssl.certificate.pem", chain, "CERTIFICATE")
    kind = _kind(draft, "keystore")
    password, key_password = _given(draft, "ssl.keystore.password"), _given(draft, "ssl.key.password")
    if location is not None and kind == "PKCS12":
        _pkcs12(draft, location, password, key_password)
        return
    if key_password is not None:
        draft.put("ssl.key.password", key_password, "ssl.key.password")
    if location is not None and kind == "PEM":
        draft.put("ssl.key.location", location, "ssl.keystore.location")
        draft.put("ssl.certificate.location", location, "ssl.keystore.location")
    elif location is not None:
        pem = _converted(draft, stores, Store("keystore", location, kind, password, key_password))
        if pem:
            draft.settings.pop("ssl.key.password", None)
            draft.put("ssl.key.pem", pem.key, "ssl.keystore.location")
            draft.put("ssl.certificate.pem", pem.certificates, "ssl.keystore.location")


def _pkcs12(draft: Draft, location: str, password: str | None, key_password: str | None) -> None:
    if password is None:
        draft.tell(
            "tls-store", "'ssl.keystore.location' is a PKCS12 store without a password", "write ssl.keystore.password"
        )
        return
    if key_password not in (None, password) and not has_reference(f"{key_password}{password}"):
        draft.tell(
            "tls-store",
            "'ssl.key.password' differs from 'ssl.keystore.password', but librdkafka opens a PKCS12 store and its key "
            "with one password",
            f"give the key the store's password (keytool -importkeystore), or {_JVM}",
        )
    draft.put("ssl.keystore.location", location, "ssl.keystore.location")
    draft.put("ssl.keystore.password", password, "ssl.keystore.password")


def _given(draft: Draft, name: str) -> str | None:
    return draft.given.get(name)


def _put_pem(draft: Draft, target: str, source: str, ending: str) -> None:
    text = draft.given[source]
    if has_reference(text):
        draft.put(target, text, source)
    elif found := blocks(text, ending):
        draft.put(target, found, source)
    else:
        draft.tell(
            "tls-pem", f"{source!r} holds no PEM block {ending}", f"write -----BEGIN … {ending}----- to -----END"
        )


def _converted(draft: Draft, stores: Stores | None, store: Store) -> Pem | None:
    if stores is not None:
        return stores(store)
    name = f"ssl.{store.which}.location"
    if store.location.lower().endswith((".pem", ".crt", ".cer")):
        fix = f"write ssl.{store.which}.type=PEM, if it is a PEM file"
    elif store.which == "truststore":
        fix = (
            f"convert it (keytool -list -rfc -keystore {store.location} > ca.pem), "
            f"write its path and ssl.truststore.type=PEM, or {_JVM}"
        )
    else:
        fix = (
            f"convert it (keytool -importkeystore -srckeystore {store.location} -destkeystore client.p12 "
            f"-deststoretype PKCS12), write its path and ssl.keystore.type=PKCS12, or {_JVM}"
        )
    draft.tell("tls-store-conversion", f"{name!r} is a {store.kind} store, which librdkafka cannot read", fix)
    return None


def _endpoint(draft: Draft) -> None:
    name = "ssl.endpoint.identification.algorithm"
    text = draft.given.get(name)
    if text is None:
        return
    if has_reference(text) or text.lower() in ("", "none", "https"):
        draft.put(name, text.lower() if text.lower() == "https" or has_reference(text) else "none", name)
    else:
        draft.tell(
            "client-setting-value",
            f"{name!r} has the value {text!r}{nearest(text, ['https'])}",
            "give https, or an empty text to switch the check of the host's name off",
        )


def _protocols(draft: Draft) -> None:
    for name in ("ssl.enabled.protocols", "ssl.protocol"):
        text = draft.given.get(name)
        if text is None or has_reference(text):
            continue
        given = {part.strip(): part for part in text.split(",")}
        unknown = [part for part in given if part not in _PROTOCOLS]
        if unknown:
            hint = nearest(unknown[0], _PROTOCOLS[:2])
            draft.tell(
                "client-setting-value", f"{name!r} has the value {unknown[0]!r}{hint}", "give TLSv1.2, TLSv1.3 or both"
            )
        elif set(given) == {"TLSv1.3"} and name == "ssl.enabled.protocols":
            draft.tell(
                "client-setting-refused",
                f"{name!r} is TLSv1.3 alone, but librdkafka takes TLSv1.2 too and cannot be told otherwise",
                f"write TLSv1.2,TLSv1.3 and let the brokers refuse TLSv1.2, or {_JVM}",
            )
        elif not set(given) & _NEW:
            draft.tell(
                "client-setting-refused",
                f"{name!r} is {text!r}, which OpenSSL no longer speaks",
                "give TLSv1.2, TLSv1.3 or both",
            )
        elif set(given) not in ({"TLSv1.2", "TLSv1.3"}, {"TLSv1.3"}, {"TLS"}):
            draft.warn(
                "client-setting-dropped",
                f"{name!r} is {text!r}, but librdkafka takes TLSv1.2 and TLSv1.3 and no others",
                "write TLSv1.2,TLSv1.3, or remove it",
            )


def _ciphers(draft: Draft) -> None:
    name = "ssl.cipher.suites"
    text = draft.given.get(name)
    if text is None:
        return
    # OpenSSL names the suites of TLS 1.3 apart (TLS_AES_128_GCM_SHA256) and refuses them in this list.
    suites = [suite for suite in text.split(",") if not re.fullmatch(r"TLS_(?!.*_WITH_).*", suite)]
    if suites or has_reference(text):
        draft.put(name, ":".join(suites), name)
    else:
        draft.tell(
            "client-setting-refused",
            f"{name!r} names suites of TLSv1.3 alone, but librdkafka takes TLSv1.2 too and cannot be told otherwise",
            f"add suites of TLSv1.2, or {_JVM}",
        )
