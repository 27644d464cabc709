"""Java's ``ssl.*`` settings as librdkafka's.

librdkafka reads PEM. Java's stores, JKS and PKCS12, are converted to PEM by the `Machine` that a process passes when it
creates a client; without one (while planning) no file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from kdsl.client_settings.draft import SettingsDraft
from kdsl.client_settings.key_files import explain_unreachable, pem_blocks, scheme
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import OVER_JVM
from kdsl.client_settings.stores import Pem, Store, Which
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
_PEM_TARGETS = {
    "ssl.ca.location": ("ssl.ca.pem", "CERTIFICATE"),
    "ssl.key.location": ("ssl.key.pem", "PRIVATE KEY"),
    "ssl.certificate.location": ("ssl.certificate.pem", "CERTIFICATE"),
}
"""The properties for the content of a file instead of its location, and the PEM blocks of the file that they need."""


def translate_tls(draft: SettingsDraft, machine: Machine | None) -> None:
    """Translate the settings of TLS in a draft: set librdkafka's properties, and record problems.

    If the protocol does not use TLS, only a warning is recorded. Nothing is done if the protocol is an unresolved
    reference, or if none of Java's settings of TLS and of librdkafka's files is set. Without a machine (while planning)
    no file is read, fetched or written.
    """
    names = [name for name in draft.java if name.startswith("ssl.")]
    names += [name for name in _FILES if name in draft.librdkafka]
    protocol = draft.java.get("security.protocol", "PLAINTEXT")
    if draft.is_unresolved("security.protocol") or not names:
        return
    if protocol not in ("SSL", "SASL_SSL"):
        draft.add_warning(
            "client-setting-unused",
            f"{', '.join(map(repr, names))} without effect, because 'security.protocol' is {protocol!r}",
            "write security.protocol=SSL or SASL_SSL, or remove them",
            property=names[0],
        )
        return
    _translate_truststore(draft, machine)
    _translate_keystore(draft, machine)
    _translate_endpoint(draft)
    _check_protocols(draft)
    _translate_ciphers(draft)
    for name in _FILES:
        if name in draft.settings:
            _place_file(draft, machine, name)


def _place_file(draft: SettingsDraft, machine: Machine | None, name: str) -> None:
    """Replace the location of a file in the draft's settings by what librdkafka can open on this machine.

    A file that must be fetched becomes its PEM content where librdkafka has a property for that, else a copy.
    """
    location = draft.settings[name]
    if explain_unreachable(location):
        if name in draft.librdkafka:  # for Java's settings it is reported already
            draft.add_unreachable("tls-store", name, location)
    elif machine is None:
        return
    elif name in _PEM_TARGETS and scheme(location) not in (None, "file"):
        content = draft.attempt(partial(machine.read_file, location))
        if content is None:
            return
        target, ending = _PEM_TARGETS[name]
        del draft.settings[name]
        if pem := pem_blocks(content.decode(errors="replace"), ending):
            draft.set(target, pem, name)
        else:
            draft.add_error(
                "tls-pem", f"the file at {location} holds no PEM block {ending}", "write the address of another", name
            )
        _write_chain(draft, machine, name)
    else:
        draft.settings[name] = draft.attempt(partial(machine.find_file, location)) or location


def _store_type(draft: SettingsDraft, which: Which) -> str:
    """Return the type of a store: declared, or by its file name PKCS12 (``.p12``, ``.pfx``) or JKS (any other)."""
    location = draft.java.get(f"ssl.{which}.location", "").lower()
    return draft.java.get(f"ssl.{which}.type") or ("PKCS12" if location.endswith((".p12", ".pfx")) else "JKS")


def _check_location(draft: SettingsDraft, which: Which, contents: Iterable[str]) -> str | None:
    """Record what Java refuses about a store, and return its location; None if that is not set, known or readable."""
    kind, name = _store_type(draft, which), f"ssl.{which}.location"
    location = draft.java.get(name)
    inline = [setting for setting in contents if setting in draft.java]
    if inline and kind != "PEM" and not draft.is_unresolved(f"ssl.{which}.type"):
        draft.add_error(
            "tls-store",
            f"{inline[0]!r} contains PEM, but the type of the {which} is {kind}",
            f"write ssl.{which}.type=PEM",
            property=inline[0],
        )
    elif inline and location is not None:
        draft.add_error("tls-store", f"{name!r} and {inline[0]!r} are both set", "keep one of the two", property=name)
    password = f"ssl.{which}.password"
    if password in draft.java:
        if kind == "PEM":
            draft.add_error(
                "tls-store", f"{password!r} is set, but a PEM {which} has no password", "remove it", property=password
            )
        elif location is None:
            draft.add_error(
                "tls-store", f"{password!r} is set without a store", f"write {name}, or remove it", property=password
            )
    if location is None or draft.is_unresolved(name) or draft.is_unresolved(f"ssl.{which}.type"):
        return None
    return None if draft.add_unreachable("tls-store", name, location) else location


def _translate_truststore(draft: SettingsDraft, machine: Machine | None) -> None:
    """Translate the trusted authorities: PEM, a PEM file or a Java store, which is not read while planning."""
    text = "ssl.truststore.certificates"
    location = _check_location(draft, "truststore", [text])
    if text in draft.java:
        _set_pem(draft, "ssl.ca.pem", text, "CERTIFICATE")
    if location is None:
        return
    kind = _store_type(draft, "truststore")
    if kind == "PEM":
        draft.set("ssl.ca.location", location, "ssl.truststore.location")
    elif pem := _convert_store(
        draft, machine, Store("truststore", location, kind, draft.java.get("ssl.truststore.password"))
    ):
        draft.set("ssl.ca.pem", pem.certificates, "ssl.truststore.location")


def _translate_keystore(draft: SettingsDraft, machine: Machine | None) -> None:
    """Translate the client's key and certificates: PEM, a PEM file or a Java store, which planning does not read."""
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    location = _check_location(draft, "keystore", [key, chain])
    if (key in draft.java) != (chain in draft.java):
        present, missing = (key, chain) if key in draft.java else (chain, key)
        draft.add_error("tls-store", f"{present!r} is set without {missing!r}", f"set {missing} too", property=present)
    if key in draft.java:
        _set_pem(draft, "ssl.key.pem", key, "PRIVATE KEY")
    if chain in draft.java:
        _set_pem(draft, "ssl.certificate.pem", chain, "CERTIFICATE")
        _write_chain(draft, machine, chain)
    kind = _store_type(draft, "keystore")
    password, key_password = draft.java.get("ssl.keystore.password"), draft.java.get("ssl.key.password")
    if location is not None and kind == "PKCS12" and not _has_one_password(draft, password, key_password):
        return
    if key_password is not None:
        draft.set("ssl.key.password", key_password, "ssl.key.password")
    if location is not None and kind == "PEM":
        draft.set("ssl.key.location", location, "ssl.keystore.location")
        draft.set("ssl.certificate.location", location, "ssl.keystore.location")
    elif location is not None:
        pem = _convert_store(draft, machine, Store("keystore", location, kind, password, key_password))
        if pem:
            draft.settings.pop("ssl.key.password", None)
            draft.set("ssl.key.pem", pem.key, "ssl.keystore.location")
            draft.set("ssl.certificate.pem", pem.certificates, "ssl.keystore.location")
            _write_chain(draft, machine, "ssl.keystore.location")


def _write_chain(draft: SettingsDraft, machine: Machine | None, source: str) -> None:
    """Move a chain of several certificates to a file: librdkafka sends intermediate certificates only from a file."""
    text = draft.settings.get("ssl.certificate.pem", "")
    if machine is not None and text.count("-----BEGIN ") > 1:
        path = draft.attempt(lambda: machine.write_file("chain.pem", text))
        if path is not None:
            del draft.settings["ssl.certificate.pem"]
            draft.set("ssl.certificate.location", path, source)


def _has_one_password(draft: SettingsDraft, password: str | None, key_password: str | None) -> bool:
    """Return whether store and key have the same password, or may have; report it if not, as in PKCS12 they must."""
    if key_password in (None, password) or has_reference(f"{key_password}{password}"):
        return True
    draft.add_error(
        "tls-store",
        "'ssl.key.password' differs from 'ssl.keystore.password', but a PKCS12 store and its key have one password",
        "change the key's password to that of the store (keytool -importkeystore), and set it once",
        property="ssl.key.password",
    )
    return False


def _set_pem(draft: SettingsDraft, target: str, source: str, ending: str) -> None:
    """Set a property of librdkafka to the PEM blocks of a setting, or to its reference; report one without a block."""
    text = draft.java[source]
    if has_reference(text):
        draft.set(target, text, source)
    elif pem := pem_blocks(text, ending):
        draft.set(target, pem, source)
    else:
        draft.add_error(
            "tls-pem",
            f"{source!r} contains no PEM block {ending}",
            f"write -----BEGIN … {ending}----- to -----END",
            property=source,
        )


def _convert_store(draft: SettingsDraft, machine: Machine | None, store: Store) -> Pem | None:
    """Read a Java store as PEM; None while planning, and after a problem, as of a store with the name of a PEM file."""
    name = f"ssl.{store.which}.location"
    if store.location.lower().endswith((".pem", ".crt", ".cer")):
        draft.add_error(
            "tls-store",
            f"{name!r} is {store.location!r}, but the type of the {store.which} is {store.kind}",
            f"write ssl.{store.which}.type=PEM",
            property=name,
        )
        return None
    return None if machine is None else draft.attempt(lambda: machine.read_store(store))


def _translate_endpoint(draft: SettingsDraft) -> None:
    """Translate the check of the host name: librdkafka calls an empty string ``none``."""
    name = "ssl.endpoint.identification.algorithm"
    text = draft.java.get(name)
    if text is None:
        return
    if has_reference(text) or text.lower() in ("", "none", "https"):
        draft.set(name, text.lower() if text.lower() == "https" or has_reference(text) else "none", name)
    else:
        draft.add_error(
            "client-setting-value",
            f"{name!r} has the value {text!r}{nearest(text, ['https'])}",
            "use https, or an empty string to turn the check of the host name off",
            property=name,
        )


def _check_protocols(draft: SettingsDraft) -> None:
    """Record an error for TLS versions that do not exist or are too old, and for TLSv1.3 as the only enabled one.

    Any other choice than TLSv1.2 and TLSv1.3 together, ``TLS``, or TLSv1.3 as ``ssl.protocol``, gets a warning.
    References are not checked.
    """
    for name in ("ssl.enabled.protocols", "ssl.protocol"):
        text = draft.java.get(name)
        if text is None or has_reference(text):
            continue
        protocols = {part.strip() for part in text.split(",")}
        unknown = [part for part in map(str.strip, text.split(",")) if part not in _PROTOCOLS]
        if unknown:
            hint = nearest(unknown[0], _PROTOCOLS[:2])
            draft.add_error(
                "client-setting-value",
                f"{name!r} has the value {unknown[0]!r}{hint}",
                "use TLSv1.2, TLSv1.3 or both",
                property=name,
            )
        elif protocols == {"TLSv1.3"} and name == "ssl.enabled.protocols":
            draft.add_error(
                "client-setting-refused",
                f"{name!r} is TLSv1.3 only, but librdkafka always accepts TLSv1.2 as well",
                f"write TLSv1.2,TLSv1.3 and let the brokers refuse TLSv1.2, or {OVER_JVM}",
                property=name,
            )
        elif not protocols & _NEW:
            draft.add_error(
                "client-setting-refused",
                f"{name!r} is {text!r}, which OpenSSL no longer supports",
                "use TLSv1.2, TLSv1.3 or both",
                property=name,
            )
        elif protocols not in ({"TLSv1.2", "TLSv1.3"}, {"TLSv1.3"}, {"TLS"}):
            draft.add_warning(
                "client-setting-dropped",
                f"{name!r} is {text!r}, but librdkafka supports only TLSv1.2 and TLSv1.3",
                "write TLSv1.2,TLSv1.3, or remove it",
                property=name,
            )


def _translate_ciphers(draft: SettingsDraft) -> None:
    """Set the cipher suites, with unchanged names, without those of TLSv1.3; report a list that has only these."""
    name = "ssl.cipher.suites"
    text = draft.java.get(name)
    if text is None:
        return
    # OpenSSL configures the suites of TLS 1.3 (TLS_AES_128_GCM_SHA256) separately and refuses them in this list.
    suites = [suite for suite in text.split(",") if not re.fullmatch(r"TLS_(?!.*_WITH_).*", suite)]
    if suites or has_reference(text):
        draft.set(name, ":".join(suites), name)
    else:
        draft.add_error(
            "client-setting-refused",
            f"{name!r} lists suites of TLSv1.3 only, but librdkafka always accepts TLSv1.2 as well",
            f"add suites of TLSv1.2, or {OVER_JVM}",
            property=name,
        )
