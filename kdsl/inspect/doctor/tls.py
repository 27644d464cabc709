"""TLS by itself: why a handshake with a broker fails, in words."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress

from kdsl.client.bootstrap import Address
from kdsl.inspect.doctor.findings import Finding, error, ok, warning
from kdsl.run.cluster.port import Fault, connected, fault_of, showing, verifying

_CHECK = "TLS"


def handshake(address: Address, settings: Mapping[str, str]) -> Finding:
    """Whether client and broker accept each other's certificates.

    Args:
        address: The broker's listener, which speaks TLS.
        settings: librdkafka's settings, secrets resolved.
    """
    check = f"{_CHECK} {address}"
    try:
        with showing(verifying(settings), settings) as context:
            return _shake(check, address, context)
    except OSError as e:  # ssl.SSLError is one
        return error(check, f"the client's own certificates cannot be used: {_reason(e)}", "correct the ssl. settings")


def _shake(check: str, address: Address, context: ssl.SSLContext) -> Finding:
    try:
        with (
            connected(address) as connection,
            context.wrap_socket(connection, server_hostname=address.host) as secured,
        ):
            secured.settimeout(1.0)
            with suppress(TimeoutError):
                secured.recv(1)  # a broker refuses a client's certificate only after the handshake
            version, verified = secured.version(), context.verify_mode is not ssl.CERT_NONE
    except ssl.SSLCertVerificationError as e:
        return _refused(check, address, e)
    except ssl.SSLError as e:
        return _alert(check, e)
    except OSError as e:
        message = f"the broker ended the handshake: {_reason(e)}"
        fix = "see that it asks for no client certificate (ssl.client.auth), or give one: ssl.keystore.*"
        return error(check, message, fix)
    if not verified:
        message = f"{version}, but anybody may pretend to be the broker: its certificate is not verified"
        return warning(check, message, "verify it: give the CA as ssl.truststore.*")
    return ok(check, f"{version}, certificates are accepted")


def _refused(check: str, address: Address, e: ssl.SSLCertVerificationError) -> Finding:
    match fault_of(e):
        case Fault.OTHER_NAME:
            message = f"the broker's certificate is not for {address.host!r} ({e.verify_message})"
            fix = "connect by a name that stands in the certificate, or have one made with this name"
        case Fault.EXPIRED:
            message, fix = "the broker's certificate has expired", "renew it on the broker"
        case Fault.NOT_YET:
            message, fix = "the broker's certificate is not valid yet", "see that the clocks are right"
        case Fault.UNKNOWN_ISSUER:
            message = "nobody that this client trusts has signed the broker's certificate"
            fix = "give the CA that signed it: ssl.truststore.location, or ssl.truststore.certificates as PEM"
        case Fault.OTHER:
            message = f"the broker's certificate is not accepted: {e.verify_message}"
            fix = "see the certificate (openssl s_client -connect HOST:PORT)"
    return error(check, message, fix)


def _alert(check: str, e: ssl.SSLError) -> Finding:
    reason = (e.reason or "").lower().replace("_", " ")
    if "certificate" in reason and "verify" not in reason:
        message = f"the broker does not accept the client's certificate, or misses one ({reason})"
        return error(check, message, "give one that the broker's truststore knows: ssl.keystore.*")
    if "version" in reason or "protocol" in reason:
        message = f"client and broker share no version of TLS ({reason})"
        return error(check, message, "see ssl.enabled.protocols on both sides")
    return error(check, f"the handshake failed: {_reason(e)}", "see the broker's log of this moment")


def _reason(e: OSError) -> str:
    if isinstance(e, ssl.SSLError):
        return (e.reason or "no reason given").lower().replace("_", " ")
    return e.strerror or str(e) or type(e).__name__
