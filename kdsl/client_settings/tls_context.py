"""The TLS contexts of Python that do what librdkafka's settings say: for the registry, and to examine brokers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from kdsl.client_settings.key_files import load_key, pem_blocks

CHECK_NAME = "ssl.endpoint.identification.algorithm"


def create_trusting_context() -> ssl.SSLContext:
    """Create a client's context that accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def create_verifying_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """Create a client's context that trusts what librdkafka's settings trust, without a client certificate.

    If the settings disable the verification, it accepts any certificate.
    """
    context = create_trusting_context()
    if settings.get("enable.ssl.certificate.verification", "true") == "false":
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    context.check_hostname = settings.get(CHECK_NAME, "https") == "https"
    path, text = settings.get("ssl.ca.location", "probe"), settings.get("ssl.ca.pem")
    if path != "probe":
        context.load_verify_locations(**{"capath" if Path(path).is_dir() else "cafile": path})
    elif text:
        context.load_verify_locations(cadata=text)
    else:
        context.load_default_certs()
    return context


def load_client_certificate(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Load the client certificate of librdkafka's settings (with resolved secrets) into a context, if there is one.

    The key is in a temporary file meanwhile (`load_key`).
    """
    parts = {"certificate": "CERTIFICATE", "key": "PRIVATE KEY"}
    texts = []
    for what, ending in parts.items():
        text, path = settings.get(f"ssl.{what}.pem"), settings.get(f"ssl.{what}.location")
        if text is None and path is not None:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        texts += [] if text is None else [pem_blocks(text, ending)]
    if texts:
        load_key(context, "".join(texts), settings.get("ssl.key.password"))
