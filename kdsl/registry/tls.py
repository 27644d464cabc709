"""The TLS of a registry's client: Java's stores and PEM as an SSL context, in the process that asks."""

from __future__ import annotations

import ssl
from pathlib import Path

from kdsl.client.key_files import KeyFileError, local_path, private_file
from kdsl.client.pem import blocks
from kdsl.client.stores import Store, StoreError, read_store
from kdsl.registry.errors import RegistryError
from kdsl.registry.settings import Tls


def context(tls: Tls) -> ssl.SSLContext:
    """The context of a client.

    Raises:
        RegistryError: A store cannot be read, or holds no key that can be used.
    """
    try:
        return _context(tls)
    except (KeyFileError, StoreError) as e:
        raise RegistryError(f"the registry's keys: {e}") from None
    except (OSError, ssl.SSLError, ValueError) as e:
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or type(e).__name__
        raise RegistryError(
            f"the registry's keys cannot be used ({reason}); see that key, certificates and password belong together"
        ) from None


def _context(tls: Tls) -> ssl.SSLContext:
    authorities, _ = _pem(tls.truststore, blocks(tls.authorities, "CERTIFICATE"))
    made = ssl.create_default_context(cadata=authorities or None)
    if not tls.checks_host:
        made.check_hostname = False
    chain, key = _pem(tls.keystore, blocks(tls.chain, "CERTIFICATE"), blocks(tls.key, "PRIVATE KEY"))
    if key:
        # OpenSSL takes a client's key from a file alone; it goes with the process.
        path = private_file("registry.pem", (chain + key).encode())
        made.load_cert_chain(str(path), password=lambda: tls.password or "")
    return made


def _pem(store: Store | None, certificates: str, key: str = "") -> tuple[str, str]:
    """The certificates and the key, of a store or as they are written."""
    if store is None:
        return certificates, key
    if store.kind == "PEM":
        text = Path(local_path(store.location)).read_text(encoding="utf-8")
        return blocks(text, "CERTIFICATE"), blocks(text, "PRIVATE KEY")
    found = read_store(store)
    return found.certificates, found.key
