"""Why a cluster does not let a client in, told apart: what the client said, and what a second look at the port shows.

librdkafka says of every bad certificate that it "could not be verified", and of a listener of another protocol that it
times out. So after a first failure the first broker's port is looked at by itself: does it speak TLS, what is wrong
with its certificate, does it ask for a login, and which mechanisms does it take.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping

import attrs

from kdsl.client.bootstrap import Address, AddressError, parse_address
from kdsl.run.cluster.port import CHECK_NAME, Fault, asks_for_login, connected, fault_of, trusting, verifying

_SECONDS = 2.0
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
    """What a look at a port showed.

    Attributes:
        tls: Whether it speaks TLS; None where nobody answers at all.
        certificate: What is wrong with its certificate; empty where nothing is.
        asks_for_certificate: Whether it wants one of the client.
        sasl: Whether it asks for a login; None where it did not say.
    """

    tls: bool | None = None
    certificate: str = ""
    asks_for_certificate: bool = False
    sasl: bool | None = None


def plain(settings: Mapping[str, object]) -> dict[str, str]:
    """Those of librdkafka's settings that `reason` needs; none of them is a secret."""
    return {name: str(settings[name]) for name in _PLAIN if name in settings}


def is_telling(said: str) -> bool:
    """Whether the client's word is one after which waiting does not help, so that the port is worth a look."""
    return _TELLING.search(said) is not None


def reason(servers: str, settings: Mapping[str, str], said: str | None) -> str | None:
    """Why the brokers refuse, and what to write instead; None where it cannot be told.

    Args:
        servers: ``bootstrap.servers``; the first one is looked at, which takes two seconds at most.
        settings: librdkafka's settings, as `plain` leaves them.
        said: The client's last word.
    """
    protocol = settings.get("security.protocol", "plaintext").upper()
    said = said or ""
    if told := _of_words(said, settings):
        return told
    found = look(servers.split(",")[0], settings)
    return None if found.tls is None else _of_port(found, protocol, settings, said)


def _of_words(said: str, settings: Mapping[str, str]) -> str | None:
    mechanism = settings.get("sasl.mechanism", "")
    if found := _TOKEN.search(said):
        return (
            f"no token came from the identity provider ({found[1].strip()}); check "
            "sasl.oauthbearer.token.endpoint.url and the client's id and secret"
        )
    if "Unsupported SASL mechanism" in said:
        known = _MECHANISMS.search(said)
        others = f", but {known[1].strip()}" if known else ""
        return f"they do not take sasl.mechanism={mechanism}{others}; write one that they take"
    if "not valid in current SASL state" in said:
        return "this listener asks for no login; write security.protocol=PLAINTEXT or SSL, or its SASL listener's port"
    if "SASL authentication error" in said and mechanism == "OAUTHBEARER":
        return "they do not accept the token; check its issuer, audience and life against the brokers' settings"
    if _CREDENTIALS.search(said):
        return f"the user name or the password is wrong (sasl.mechanism={mechanism}); check sasl.jaas.config"
    return None


def _of_port(found: Port, protocol: str, settings: Mapping[str, str], said: str) -> str | None:
    wants_tls, wants_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    if wants_tls and not found.tls:
        other = "SASL_PLAINTEXT" if found.sasl or wants_login else "PLAINTEXT"
        return f"the port does not speak TLS, but security.protocol is {protocol}; write {other}, or the TLS port"
    if not wants_tls and found.tls:
        other = "SASL_SSL" if wants_login else "SSL or SASL_SSL"
        return f"the port speaks TLS, but security.protocol is {protocol}; write {other}"
    if found.certificate:
        return f"the brokers' certificate is not accepted: {found.certificate}"
    has_own = any(settings.get(f"ssl.{name}") for name in ("certificate.location", "certificate.pem"))
    if found.asks_for_certificate and not has_own:
        return "they ask for a certificate of the client; write ssl.keystore.location with the key and its chain"
    if has_own and "alert" in said:
        return "they do not accept the client's certificate; check that its chain leads to an authority they trust"
    if found.sasl and not wants_login:
        other = "SASL_SSL" if wants_tls else "SASL_PLAINTEXT"
        return f"the listener asks for a login, but security.protocol is {protocol}; write {other} and sasl.mechanism"
    return None


def look(server: str, settings: Mapping[str, str]) -> Port:
    """Look at a port: TLS or not, its certificate, and whether it asks for a login."""
    try:
        address = parse_address(server)
    except AddressError:
        return Port()
    try:
        with connected(address, _SECONDS) as raw:
            return _tls(raw, address, settings)
    except ssl.SSLCertVerificationError as e:
        return Port(tls=True, certificate=_certificate(e, address.host))
    except (ssl.SSLError, ConnectionError, TimeoutError):
        return _without_tls(address)
    except (OSError, ValueError):
        return Port()


def _tls(raw: socket.socket, address: Address, settings: Mapping[str, str]) -> Port:
    ours = settings.get("security.protocol", "plaintext").upper().endswith("SSL")
    context = verifying(settings) if ours else trusting()
    with context.wrap_socket(raw, server_hostname=address.host) as secured:
        try:
            return Port(tls=True, sasl=asks_for_login(secured))
        except ssl.SSLError as e:
            return Port(tls=True, asks_for_certificate="CERTIFICATE" in (e.reason or ""))
        except OSError:
            return Port(tls=True)


def _without_tls(address: Address) -> Port:
    try:
        with connected(address, _SECONDS) as raw:
            sasl = asks_for_login(raw)
            return Port(tls=False, sasl=sasl) if sasl is not None else Port()
    except OSError:
        return Port()


def _certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    match fault_of(error):
        case Fault.EXPIRED:
            return "it has expired; the brokers need a new one (and is this machine's clock right?)"
        case Fault.NOT_YET:
            return "it is not valid yet; is this machine's clock right?"
        case Fault.OTHER_NAME:
            return (
                f"it is not for the host {host!r}; write a name that it has in bootstrap.servers, or "
                f"{CHECK_NAME}= (empty) to go without the check"
            )
        case Fault.UNKNOWN_ISSUER:
            return "its authority is not among those that ssl.truststore.location (or .certificates) holds"
        case Fault.OTHER:
            return error.verify_message
