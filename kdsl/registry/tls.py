"""The TLS context of the registry client, from Java's stores or PEM."""

from __future__ import annotations

import ssl

from kdsl.client_settings.key_files import KeyFileError, load_key, pem_blocks, read_file
from kdsl.client_settings.stores import Store, StoreError, read_store
from kdsl.registry.errors import RegistryError
from kdsl.registry.settings import Tls


def make_context(tls: Tls) -> ssl.SSLContext:
    """Create the TLS context of a client; a key of its own is in a private file for a moment."""
    try:
        return _make_context(tls)
    except (KeyFileError, StoreError) as e:
        raise RegistryError(f"the registry's keys: {e}; correct the file, its location or its password") from None
    except (OSError, ssl.SSLError, ValueError) as e:
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or type(e).__name__
        raise RegistryError(
            f"the registry's keys cannot be used ({reason}); check that key, certificates and password belong together"
        ) from None


def _make_context(tls: Tls) -> ssl.SSLContext:
    """Create the TLS context from the trusted authorities and the client's keys.

    Without a truststore and authorities in the settings, those of this machine are trusted. The context checks host
    names unless the settings turn it off. The client's key is in a private file for a moment (`load_key`),
    and the content of a Java store stays in memory.
    """
    authorities, _ = _read_pem(tls.truststore, pem_blocks(tls.authorities, "CERTIFICATE"))
    if not authorities and (tls.truststore is not None or tls.authorities):  # else this machine's would be trusted
        place = "the settings" if tls.truststore is None else f"the truststore {tls.truststore.location}"
        raise StoreError(f"{place}: there is no certificate of an authority; add one (-----BEGIN CERTIFICATE-----)")
    context = ssl.create_default_context(cadata=authorities or None)
    if not tls.checks_host:
        context.check_hostname = False
    chain, key = _read_pem(tls.keystore, pem_blocks(tls.chain, "CERTIFICATE"), pem_blocks(tls.key, "PRIVATE KEY"))
    if key:
        load_key(context, chain + key, tls.password)
    return context


def _read_pem(store: Store | None, certificates: str, key: str = "") -> tuple[str, str]:
    """Read certificates and key, in this order, from a store, or return those of the settings if there is no store."""
    if store is None:
        return certificates, key
    if store.kind == "PEM":
        text = read_file(store.location).decode()
        return pem_blocks(text, "CERTIFICATE"), pem_blocks(text, "PRIVATE KEY")
    pem = read_store(store)
    return pem.certificates, pem.key
