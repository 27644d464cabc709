"""TLS by itself: why a handshake with a broker fails, in words."""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kdsl.inspect.doctor.findings import Finding, error, ok, warning
from kdsl.inspect.doctor.network import PATIENCE, Address

_CHECK = "TLS"
# Numbers of OpenSSL's verification errors.
_EXPIRED, _SELF_SIGNED, _NOT_YET = 10, (18, 19), 9
_UNKNOWN_ISSUER, _OTHER_NAME = (2, 20, 21), (62, 64)


def handshake(address: Address, settings: Mapping[str, str]) -> Finding:
    """Whether client and broker accept each other's certificates.

    Args:
        address: The broker's listener, which speaks TLS.
        settings: librdkafka's settings, secrets resolved.
    """
    check = f"{_CHECK} {address}"
    try:
        with _context(settings) as context:
            return _shake(check, address, context)
    except OSError as e:  # ssl.SSLError is one
        return error(check, f"the client's own certificates cannot be used: {_reason(e)}", "correct the ssl. settings")


def _shake(check: str, address: Address, context: ssl.SSLContext) -> Finding:
    try:
        with (
            socket.create_connection((address.host, address.port), timeout=PATIENCE) as connection,
            context.wrap_socket(connection, server_hostname=address.host) as secured,
        ):
            secured.settimeout(0.3)
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
    match e.verify_code:
        case code if code in _OTHER_NAME:
            message = f"the broker's certificate is not for {address.host!r} ({e.verify_message})"
            fix = "connect by a name that stands in the certificate, or have one made with this name"
        case code if code == _EXPIRED:
            message, fix = "the broker's certificate has expired", "renew it on the broker"
        case code if code == _NOT_YET:
            message, fix = "the broker's certificate is not valid yet", "see that the clocks are right"
        case code if code in (*_SELF_SIGNED, *_UNKNOWN_ISSUER):
            message = "nobody that this client trusts has signed the broker's certificate"
            fix = "give the CA that signed it: ssl.truststore.location, or ssl.truststore.certificates as PEM"
        case _:
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


@contextmanager
def _context(settings: Mapping[str, str]) -> Iterator[ssl.SSLContext]:
    """What the client of the settings would trust and show."""
    context = ssl.create_default_context(cadata=settings.get("ssl.ca.pem"))
    if settings.get("ssl.ca.location", "probe") != "probe":
        place = Path(settings["ssl.ca.location"])
        context.load_verify_locations(**{"capath" if place.is_dir() else "cafile": str(place)})
    if settings.get("enable.ssl.certificate.verification", "true") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    password = settings.get("ssl.key.password")
    if "ssl.certificate.pem" in settings:
        with tempfile.TemporaryDirectory() as folder:  # ssl reads chains from files only; mode 0700
            path = Path(folder, "chain.pem")
            path.write_text(settings["ssl.certificate.pem"] + "\n" + settings.get("ssl.key.pem", ""), encoding="utf-8")
            context.load_cert_chain(path, password=password)
    elif "ssl.certificate.location" in settings:
        context.load_cert_chain(settings["ssl.certificate.location"], settings.get("ssl.key.location"), password)
    yield context


def _reason(e: OSError) -> str:
    if isinstance(e, ssl.SSLError):
        return (e.reason or "no reason given").lower().replace("_", " ")
    return e.strerror or str(e) or type(e).__name__
