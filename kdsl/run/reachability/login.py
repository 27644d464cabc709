"""Why a cluster does not accept a client: from the client's error, and from an examination of the port.

librdkafka reports every bad certificate as one that "could not be verified", and a listener of another protocol as a
timeout. Therefore, after a first failure, kdsl examines the first broker's port itself: whether it speaks TLS, what is
wrong with its certificate, whether it requires a login, and which mechanisms it accepts.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping

import attrs

from kdsl.client_settings.bootstrap import Address, AddressError, parse_address
from kdsl.client_settings.cloud_logins import CLOUDS
from kdsl.client_settings.tls_context import CHECK_NAME, create_trusting_context, create_verifying_context
from kdsl.client_settings.to_librdkafka import TOKEN_CALLBACK
from kdsl.client_settings.token_callback import TokenCallback
from kdsl.run.reachability.port import Fault, asks_for_login, connect, fault_of

TIMEOUT = 2.0
_CREDENTIALS = re.compile(r"invalid username or password|invalid credentials|authentication failed", re.IGNORECASE)
_MECHANISMS = re.compile(r"broker's supported mechanisms: ([\w, -]+?)(?: \(|$)")
_TELLING = re.compile(r"SSL handshake failed|alert|incorrect security\.protocol", re.IGNORECASE)
_PLAIN = (
    "security.protocol",
    "sasl.mechanism",
    CHECK_NAME,
    "enable.ssl.certificate.verification",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
)
_TOKEN = re.compile(r"Failed to acquire SASL OAUTHBEARER token: (.*)", re.DOTALL)


@attrs.frozen
class Port:
    """What an examination of a port has shown.

    Attributes:
        tls: Whether it speaks TLS; None if nothing answers.
        certificate: What is wrong with its certificate; empty if nothing is wrong.
        asks_for_certificate: Whether it requires one of the client.
        sasl: Whether it requires a login; None if that is unknown.
    """

    tls: bool | None = None
    certificate: str = ""
    asks_for_certificate: bool = False
    sasl: bool | None = None


def public_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings of librdkafka that `explain_refusal` needs; none of them is a secret."""
    shown = {name: str(settings[name]) for name in _PLAIN if name in settings}
    callback = settings.get(TOKEN_CALLBACK)
    return {**shown, TOKEN_CALLBACK: callback.provider} if isinstance(callback, TokenCallback) else shown


def is_final_error(error: str) -> bool:
    """Whether waiting does not help after an error of the client, and the port should be examined."""
    return _TELLING.search(error) is not None


def explain_refusal(servers: str, settings: Mapping[str, str], error: str | None) -> str | None:
    """Explain why the brokers refuse a client, and what to write instead; None if that is unknown.

    Args:
        servers: ``bootstrap.servers``. Unless the error explains it, the first one's port is examined; each connection
            and each answer may take two seconds.
        settings: librdkafka's settings, as `public_settings` returns them.
        error: The client's last error.
    """
    protocol = settings.get("security.protocol", "plaintext").upper()
    error = error or ""
    if explanation := _explain_error(error, settings):
        return explanation
    port = examine_port(servers.split(",")[0], settings)
    return None if port.tls is None else _explain_port(port, protocol, settings, error)


def _explain_error(error: str, settings: Mapping[str, str]) -> str | None:
    """Explain a login error of librdkafka; None if it is not a known one."""
    mechanism = settings.get("sasl.mechanism", "")
    provider = settings.get(TOKEN_CALLBACK, "")
    cloud = CLOUDS.get(provider)
    if token := _TOKEN.search(error):
        if provider:
            return f"there is no token for the login with {cloud.title if cloud else provider}: {token[1].strip()}"
        return (
            f"the identity provider returned no token ({token[1].strip()}); check "
            "sasl.oauthbearer.token.endpoint.url and the client's id and secret"
        )
    if "Unsupported SASL mechanism" in error:
        known = _MECHANISMS.search(error)
        others = f", but {known[1].strip()}" if known else ""
        return f"they do not accept sasl.mechanism={mechanism}{others}; write one that they accept"
    if "not valid in current SASL state" in error:
        return (
            "this listener does not require a login; write security.protocol=PLAINTEXT or SSL, or the port of its SASL "
            "listener"
        )
    if "SASL authentication error" in error and cloud is not None:
        return f"they do not accept the token of {cloud.title}; {cloud.advice}"
    if "SASL authentication error" in error and mechanism == "OAUTHBEARER":
        return "they do not accept the token; check its issuer, audience and lifetime against the brokers' settings"
    if _CREDENTIALS.search(error):
        return f"the user name or the password is wrong (sasl.mechanism={mechanism}); check sasl.jaas.config"
    return None


def _explain_port(port: Port, protocol: str, settings: Mapping[str, str], error: str) -> str | None:
    """Explain why a port does not fit the security protocol and certificates; None if nothing shows that."""
    wants_tls, wants_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    if wants_tls and not port.tls:
        other = "SASL_PLAINTEXT" if port.sasl or wants_login else "PLAINTEXT"
        return f"the port does not speak TLS, but security.protocol is {protocol}; write {other}, or the TLS port"
    if not wants_tls and port.tls:
        other = "SASL_SSL" if wants_login else "SSL or SASL_SSL"
        return f"the port speaks TLS, but security.protocol is {protocol}; write {other}"
    if port.certificate:
        return f"the brokers' certificate is not accepted: {port.certificate}"
    has_own = any(settings.get(f"ssl.{name}") for name in ("certificate.location", "certificate.pem"))
    if port.asks_for_certificate and not has_own:
        return "they require a certificate of the client; write ssl.keystore.location with the key and its chain"
    if has_own and "alert" in error:
        return "they do not accept the client's certificate; check that its chain leads to an authority they trust"
    if port.sasl and not wants_login:
        other = "SASL_SSL" if wants_tls else "SASL_PLAINTEXT"
        return f"the listener requires a login, but security.protocol is {protocol}; write {other} and sasl.mechanism"
    return None


def examine_port(server: str, settings: Mapping[str, str]) -> Port:
    """Connect to a port and find out whether it speaks TLS, its certificate, and whether it requires a login.

    What cannot be found out is None or empty in the result; nothing is raised.
    """
    try:
        address = parse_address(server)
    except AddressError:
        return Port()
    try:
        with connect(address, TIMEOUT) as raw:
            return _examine_tls(raw, address, settings)
    except ssl.SSLCertVerificationError as e:
        return Port(tls=True, certificate=_explain_certificate(e, address.host))
    except (ssl.SSLError, ConnectionError, TimeoutError):
        return _examine_plain(address)
    except (OSError, ValueError):
        return Port()


def _examine_tls(raw: socket.socket, address: Address, settings: Mapping[str, str]) -> Port:
    """Make a TLS handshake on a connection, ask whether a login is required, close it, and return what that shows.

    The certificate is checked only if the settings use TLS. A failure after the handshake is not raised: what it leaves
    unknown is None in the result.
    """
    ours = settings.get("security.protocol", "plaintext").upper().endswith("SSL")
    context = create_verifying_context(settings) if ours else create_trusting_context()
    with context.wrap_socket(raw, server_hostname=address.host) as secured:
        try:
            return Port(tls=True, sasl=asks_for_login(secured))
        except ssl.SSLError as e:
            return Port(tls=True, asks_for_certificate="CERTIFICATE" in (e.reason or ""))
        except OSError:
            return Port(tls=True)


def _examine_plain(address: Address) -> Port:
    """Connect without TLS, and return what the port is; an unknown port if it does not answer as a broker."""
    try:
        with connect(address, TIMEOUT) as raw:
            sasl = asks_for_login(raw)
            return Port(tls=False, sasl=sasl) if sasl is not None else Port()
    except OSError:
        return Port()


def _explain_certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Explain what is wrong with a broker's certificate."""
    match fault_of(error):
        case Fault.EXPIRED:
            return "it has expired; the brokers need a new one (and is this machine's clock right?)"
        case Fault.NOT_YET:
            return "it is not valid yet; is this machine's clock right?"
        case Fault.OTHER_NAME:
            return (
                f"it is not valid for the host {host!r}; write one of its names in bootstrap.servers, or "
                f"{CHECK_NAME}= (empty) to disable the check"
            )
        case Fault.UNKNOWN_ISSUER:
            return "its authority is not in ssl.truststore.location (or .certificates)"
        case Fault.OTHER:
            return error.verify_message
