"""The TLS context of the registry client, from Java's stores or PEM."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

from kdsl.client_settings.key_files import pem_blocks
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.tls_context import create_verifying_context, load_client_certificate
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.registry.errors import RegistryError


def make_context(tls: Mapping[str, str]) -> ssl.SSLContext:
    """Create the TLS context of a client from a Kafka client's settings; a key is in a private file for a moment."""
    translated = librdkafka_settings(tls, "consumer", str, Machine())
    problems = [str(problem) for problem in translated.problems if problem.severity == "error"]
    if problems:
        raise RegistryError(f"the registry's keys: {'; '.join(problems)}")
    try:
        _check_authorities(translated.settings.get("ssl.ca.location"))
        context = create_verifying_context(translated.settings)
        load_client_certificate(context, translated.settings)
        if sys.version_info >= (3, 13):  # as `ssl.create_default_context`, which other clients of HTTP use
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    except (OSError, ValueError) as e:  # ssl.SSLError is an OSError
        reason = getattr(e, "reason", None) or getattr(e, "strerror", None) or type(e).__name__
        raise RegistryError(
            f"the registry's keys cannot be used ({reason}); check that key, certificates and password belong together"
        ) from None
    return context


def _check_authorities(location: str | None) -> None:
    """Check that a PEM truststore has a certificate, because OpenSSL's reason does not name the file."""
    if location is not None and not pem_blocks(Path(location).read_text("utf-8", "replace"), "CERTIFICATE"):
        raise RegistryError(
            f"the registry's keys: the truststore {location}: there is no certificate of an authority; add one "
            "(-----BEGIN CERTIFICATE-----)"
        )
