"""Java's ``ssl.*`` settings, read together, as librdkafka's.

librdkafka reads PEM. Java's stores, JKS and PKCS12, are made PEM by a `Machine` that the process hands in when it makes
a client; without one (while planning) no file is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from kdsl.client.draft import Draft
from kdsl.client.key_files import unreachable
from kdsl.client.machine import Machine
from kdsl.client.model import OVER_JVM
from kdsl.client.pem import blocks
from kdsl.client.stores import Pem, Store, Which
from kdsl.errors import nearest
from kdsl.secrets import has_reference

_PROTOCOLS = ("TLSv1.3", "TLSv1.2", "TLSv1.1", "TLSv1", "SSLv3", "SSLv2", "TLS", "SSL")
_NEW = frozenset({"TLSv1.3", "TLSv1.2", "TLS"})
_FILES = (
    "ssl.ca.location",
    "ssl.key.location",
    "ssl.certificate.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)


def tls(draft: Draft, machine: Machine | None) -> None:
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
    _truststore(draft, machine)
    _keystore(draft, machine)
    _endpoint(draft)
    _protocols(draft)
    _ciphers(draft)
    if machine is not None:
        for name in _FILES:
            if name in draft.settings:
                path = draft.tried(partial(machine.path, draft.settings[name]))
                draft.settings[name] = path or draft.settings[name]


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
    if told := unreachable(location):
        draft.tell(
            "tls-store",
            f"{name!r} is {location!r}: {told}",
            "copy the file to the driver and to every executor and write its path, or install a fetcher",
        )
        return None
    return location


def _truststore(draft: Draft, machine: Machine | None) -> None:
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
        draft, machine, Store("truststore", location, kind, _given(draft, "ssl.truststore.password"))
    ):
        draft.put("ssl.ca.pem", pem.certificates, "ssl.truststore.location")


def _keystore(draft: Draft, machine: Machine | None) -> None:
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    location = _location(draft, "keystore", [key, chain])
    if (key in draft.given) != (chain in draft.given):
        given, missing = (key, chain) if key in draft.given else (chain, key)
        draft.tell("tls-store", f"{given!r} is given without {missing!r}", f"write {missing} too")
    if key in draft.given:
        _put_pem(draft, "ssl.key.pem", key, "PRIVATE KEY")
    if chain in draft.given:
        _put_pem(draft, "ssl.certificate.pem", chain, "CERTIFICATE")
        _whole_chain(draft, machine, chain)
    kind = _kind(draft, "keystore")
    password, key_password = _given(draft, "ssl.keystore.password"), _given(draft, "ssl.key.password")
    if location is not None and kind == "PKCS12" and not _one_password(draft, password, key_password):
        return
    if key_password is not None:
        draft.put("ssl.key.password", key_password, "ssl.key.password")
    if location is not None and kind == "PEM":
        draft.put("ssl.key.location", location, "ssl.keystore.location")
        draft.put("ssl.certificate.location", location, "ssl.keystore.location")
    elif location is not None:
        pem = _converted(draft, machine, Store("keystore", location, kind, password, key_password))
        if pem:
            draft.settings.pop("ssl.key.password", None)
            draft.put("ssl.key.pem", pem.key, "ssl.keystore.location")
            draft.put("ssl.certificate.pem", pem.certificates, "ssl.keystore.location")
            _whole_chain(draft, machine, "ssl.keystore.location")


def _whole_chain(draft: Draft, machine: Machine | None, source: str) -> None:
    """Send the certificates between the client's own and the root, too: librdkafka does so from a file alone."""
    text = draft.settings.get("ssl.certificate.pem", "")
    if machine is not None and text.count("-----BEGIN ") > 1:
        path = draft.tried(lambda: machine.file("chain.pem", text))
        if path is not None:
            del draft.settings["ssl.certificate.pem"]
            draft.put("ssl.certificate.location", path, source)


def _one_password(draft: Draft, password: str | None, key_password: str | None) -> bool:
    if key_password in (None, password) or has_reference(f"{key_password}{password}"):
        return True
    draft.tell(
        "tls-store",
        "'ssl.key.password' differs from 'ssl.keystore.password', but a PKCS12 store and its key have one password",
        "give the key the store's password (keytool -importkeystore), and write it once",
    )
    return False


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


def _converted(draft: Draft, machine: Machine | None, store: Store) -> Pem | None:
    name = f"ssl.{store.which}.location"
    if store.location.lower().endswith((".pem", ".crt", ".cer")):
        draft.tell(
            "tls-store",
            f"{name!r} is {store.location!r}, but the type of the {store.which} is {store.kind}",
            f"write ssl.{store.which}.type=PEM",
        )
        return None
    return None if machine is None else draft.tried(lambda: machine.pem(store))


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
                f"write TLSv1.2,TLSv1.3 and let the brokers refuse TLSv1.2, or {OVER_JVM}",
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
            f"add suites of TLSv1.2, or {OVER_JVM}",
        )
