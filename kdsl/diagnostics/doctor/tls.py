"""Checks TLS, and explains why a handshake with a broker fails."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress

from kdsl.client_settings.bootstrap import Address
from kdsl.client_settings.tls_context import create_verifying_context, load_client_certificate
from kdsl.diagnostics.doctor.findings import Finding, error, ok, warning
from kdsl.run.reachability.port import Fault, connect, fault_of

_CHECK = "TLS"


def check_handshake(address: Address, settings: Mapping[str, str]) -> Finding:
    """Check that client and broker accept each other's certificates.

    Args:
        address: The broker's listener, which speaks TLS.
        settings: librdkafka's settings, secrets resolved.
    """
    check = f"{_CHECK} {address}"
    try:
        context = create_verifying_context(settings)
        load_client_certificate(context, settings)
    except OSError as e:  # ssl.SSLError is one
        return error(check, f"the client's own certificates cannot be used: {_reason(e)}", "correct the ssl. settings")
    return _check_connection(check, address, context)


def _check_connection(check: str, address: Address, context: ssl.SSLContext) -> Finding:
    """Make a TLS handshake with a broker, and report how it went."""
    try:
        with (
            connect(address) as connection,
            context.wrap_socket(connection, server_hostname=address.host) as secured,
        ):
            secured.settimeout(1.0)
            with suppress(TimeoutError):
                secured.recv(1)  # a broker refuses a client's certificate only after the handshake
            version, verified = secured.version(), context.verify_mode is not ssl.CERT_NONE
    except ssl.SSLCertVerificationError as e:
        return _explain_refusal(check, address, e)
    except ssl.SSLError as e:
        return _explain_alert(check, e)
    except OSError as e:
        message = f"the broker ended the handshake: {_reason(e)}"
        fix = "set a client certificate (ssl.keystore.*), or check whether the broker requires one (ssl.client.auth)"
        return error(check, message, fix)
    if not verified:
        message = f"{version}, but the certificate is not verified: another host could pose as the broker"
        return warning(check, message, "verify it: set the CA in ssl.truststore.*")
    return ok(check, f"{version}, certificates are accepted")


def _explain_refusal(check: str, address: Address, e: ssl.SSLCertVerificationError) -> Finding:
    """Return the finding of a broker's certificate that this client does not accept, from the error alone."""
    match fault_of(e):
        case Fault.OTHER_NAME:
            message = f"the broker's certificate is not for {address.host!r} ({e.verify_message})"
            fix = "connect by a name that is in the certificate, or issue a certificate with this name"
        case Fault.EXPIRED:
            message, fix = "the broker's certificate has expired", "renew it on the broker"
        case Fault.NOT_YET:
            message, fix = "the broker's certificate is not valid yet", "check the clocks"
        case Fault.UNKNOWN_ISSUER:
            message = "the broker's certificate is not signed by an authority that this client trusts"
            fix = "set the CA that signed it: ssl.truststore.location, or ssl.truststore.certificates as PEM"
        case Fault.OTHER:
            message = f"the broker's certificate is not accepted: {e.verify_message}"
            fix = "check the certificate (openssl s_client -connect HOST:PORT)"
    return error(check, message, fix)


def _explain_alert(check: str, e: ssl.SSLError) -> Finding:
    """Return the finding of a handshake that failed for another reason than the broker's certificate."""
    reason = (e.reason or "").lower().replace("_", " ")
    if "certificate" in reason and "verify" not in reason:
        message = f"the broker does not accept the client's certificate, or requires one ({reason})"
        return error(check, message, "set one that the broker's truststore accepts: ssl.keystore.*")
    if "version" in reason or "protocol" in reason:
        message = f"client and broker have no common version of TLS ({reason})"
        return error(check, message, "check ssl.enabled.protocols on both sides")
    return error(check, f"the handshake failed: {_reason(e)}", "check the broker's log")


def _reason(e: OSError) -> str:
    """Return why a connection failed, in words for a message."""
    if isinstance(e, ssl.SSLError):
        return (e.reason or "no reason given").lower().replace("_", " ")
    return e.strerror or str(e) or type(e).__name__
