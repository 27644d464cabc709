"""The settings of a registry's client: Java's names, read as Java's client reads them.

A setting has three spellings, which mean the same: Java's (``basic.auth.user.info``), that of Flink's format options
(``basic-auth.user-info``) and the one within a Kafka client's properties (``schema.registry.basic.auth.user.info``).
While planning nothing is resolved and no file is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import attrs

from kdsl.client.hiding import without_login
from kdsl.client.jaas import JaasError, parse
from kdsl.client.key_files import unreachable
from kdsl.client.stores import Store, Which
from kdsl.cluster import Registry
from kdsl.errors import Problem, listing, nearest
from kdsl.secrets import has_reference

BASIC = "basic.auth.credentials.source"
BEARER = "bearer.auth.credentials.source"
USER_INFO = "basic.auth.user.info"
TOKEN = "bearer.auth.token"  # noqa: S105  # the name of a setting
_ISSUER = "bearer.auth.issuer.endpoint.url"
_ID, _SECRET, _SCOPE = "bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.scope"
_CLUSTER, _POOL = "bearer.auth.logical.cluster", "bearer.auth.identity.pool.id"
_JAAS = "sasl.jaas.config"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_HEADER = "request.header."
_PREFIX = "schema.registry."

NUMBERS: Mapping[str, int] = {
    "http.connect.timeout.ms": 10_000,
    "http.read.timeout.ms": 60_000,
    "max.retries": 6,
    "retries.wait.ms": 1_000,
    "retries.max.wait.ms": 20_000,
}
"""The numbers with their defaults. Java's client tries three times more; six times outlast a registry's restart."""

_BASIC_SOURCES = ("URL", "USER_INFO", "SASL_INHERIT")
_BEARER_SOURCES = ("STATIC_TOKEN", "OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT")
_STORES: tuple[Which, ...] = ("truststore", "keystore")
_TLS = (
    *(f"ssl.{which}.{what}" for which in _STORES for what in ("location", "password", "type")),
    "ssl.truststore.certificates",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
SASL = (_JAAS, "sasl.username", "sasl.password", _ENDPOINT)
NAMES = (
    *(BASIC, USER_INFO, BEARER, TOKEN, _ISSUER, _ID, _SECRET, _SCOPE, _CLUSTER, _POOL),
    *_TLS,
    *NUMBERS,
    *("proxy.host", "proxy.port", "url.randomize"),
    *SASL,
)

Resolve = Callable[[str], str]


@attrs.frozen
class OAuth:
    """Where tokens are asked for (OAuth 2.0, client credentials), and by whom."""

    url: str
    id: str
    secret: str = attrs.field(repr=False)
    scope: str = ""


@attrs.frozen
class Tls:
    """The keys of the client, and the authorities that it trusts.

    Attributes:
        truststore: The store of the authorities; None is this machine's own.
        keystore: The store of the client's key and certificates.
        authorities: The authorities as PEM text, instead of a store.
        key: The client's key as PEM text.
        chain: Its certificates as PEM text.
        password: The password of a key in PEM.
        checks_host: Whether the host's name must stand in its certificate.
    """

    truststore: Store | None = None
    keystore: Store | None = None
    authorities: str = ""
    key: str = attrs.field(default="", repr=False)
    chain: str = ""
    password: str | None = attrs.field(default=None, repr=False)
    checks_host: bool = True


@attrs.frozen
class Settings:
    """What the client makes of the settings.

    Attributes:
        urls: The registry's addresses, in the order in which they are tried; no user within them.
        basic: The user and the password.
        token: The token.
        oauth: Where tokens come from.
        tls: Keys.
        connect_timeout: Seconds to a connection.
        read_timeout: Seconds to an answer.
        retries: How often a request is made again.
        wait: Seconds before the first time; twice as many before the next.
        max_wait: The most seconds.
        proxy: The address of a proxy.
        headers: What each request says besides.
    """

    urls: tuple[str, ...]
    basic: tuple[str, str] | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    oauth: OAuth | None = None
    tls: Tls = attrs.field(factory=Tls)
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    retries: int = 6
    wait: float = 1.0
    max_wait: float = 20.0
    proxy: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


def canonical(name: str) -> str:
    """A setting's name in Java's spelling."""
    bare = name.removeprefix(_PREFIX)
    return bare if bare.startswith(_HEADER) else bare.replace("-", ".")


def is_login(name: str) -> bool:
    """Whether a setting says who asks the registry."""
    key = canonical(name)
    return key.startswith(("basic.auth.", "bearer.auth.")) and key not in (_CLUSTER, _POOL)


def inherits_login(registry: Registry | None) -> bool:
    """Whether the registry's user is the one of the Kafka clients."""
    given = {} if registry is None else registry.properties
    return any(canonical(name) in (BASIC, BEARER) and "INHERIT" in str(value) for name, value in given.items())


def registry_problems(registry: Registry) -> tuple[Problem, ...]:
    """Everything that is wrong with a registry's settings; references are looked at but not resolved."""
    return read_settings(registry)[1]


def read_settings(registry: Registry, resolve: Resolve = str) -> tuple[Settings, tuple[Problem, ...]]:
    """A registry's settings, and what is wrong with them.

    Args:
        registry: The registry.
        resolve: Gives a text with its references replaced; without it they stay.
    """
    reader = _Reader(registry, resolve)
    return reader.settings(), tuple(reader.problems)


class _Reader:
    def __init__(self, registry: Registry, resolve: Resolve) -> None:
        self.problems: list[Problem] = []
        self._given: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._urls = tuple(part for url in resolve(registry.url).split(",") if (part := url.strip().rstrip("/")))
        for name, text in registry.properties.revealed().items():
            self._take(name, resolve(text))

    def _take(self, name: str, text: str) -> None:
        key = canonical(name)
        if key in self._given and self._given[key] != text:
            self._tell("registry-setting-twice", f"{self._names[key]!r} and {name!r} differ", "keep one of the two")
            return
        self._given[key], self._names[key] = text, name
        if key not in NAMES and not key.startswith(_HEADER):
            self._tell(
                "registry-setting-unknown",
                f"the registry's client has no setting {name!r}{nearest(key, NAMES)}",
                f"use one of its settings: {listing(NAMES)}, {_HEADER}NAME",
                warning=True,
            )

    def settings(self) -> Settings:
        self._check_urls()
        numbers = {name: self._number(name, default) for name, default in NUMBERS.items()}
        basic, (token, oauth) = self._basic(), self._bearer()
        if basic and (token or oauth):
            self._tell(
                "registry-login",
                f"the registry has a user ({self._named(BASIC)}) and a token ({self._named(BEARER)})",
                "keep one of the two",
            )
        headers = {key.removeprefix(_HEADER): text for key, text in self._given.items() if key.startswith(_HEADER)}
        more = {"target-sr-cluster": _CLUSTER, "Confluent-Identity-Pool-Id": _POOL}
        headers |= {header: self._given[name] for header, name in more.items() if name in self._given}
        return Settings(
            urls=self._urls,
            basic=basic,
            token=token,
            oauth=oauth,
            tls=self._tls(),
            connect_timeout=numbers["http.connect.timeout.ms"] / 1000,
            read_timeout=numbers["http.read.timeout.ms"] / 1000,
            retries=numbers["max.retries"],
            wait=numbers["retries.wait.ms"] / 1000,
            max_wait=numbers["retries.max.wait.ms"] / 1000,
            proxy=self._proxy(),
            headers=headers,
        )

    def _tell(self, code: str, message: str, fix: str, *, warning: bool = False) -> None:
        self.problems.append(Problem(code, message, fix, severity="warning" if warning else "error"))

    def _named(self, name: str) -> str:
        return repr(self._names.get(name, name))

    def _check_urls(self) -> None:
        if not self._urls:
            self._tell("registry-url", "the registry has no address", "write url: https://HOST:PORT")
        for url in self._urls:
            parts = urlsplit(url)
            if has_reference(url):
                continue
            if parts.scheme not in ("http", "https") or not parts.hostname:
                shown = without_login(url)
                self._tell(
                    "registry-url",
                    f"the address of the registry {shown!r} is no address of a web server",
                    "write https://HOST:PORT, several with commas between them",
                )

    def _number(self, name: str, default: int) -> int:
        text = self._given.get(name)
        if text is None or has_reference(text):
            return default
        if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
            self._tell(
                "registry-setting-value",
                f"{self._named(name)} has the value {text!r}",
                "give a whole number, 0 or more",
            )
            return default
        return int(text)

    def _source(self, name: str, sources: tuple[str, ...]) -> str | None:
        text = self._given.get(name)
        if text is None or has_reference(text):
            return None
        source = text.strip().upper()
        if source in sources:
            return source
        why = " names a Java class" if source == "CUSTOM" else ""
        self._tell(
            "registry-login",
            f"{self._named(name)} is {text!r}{why}{nearest(source, sources)}",
            f"write one of {listing(sources)}",
        )
        return None

    def _basic(self) -> tuple[str, str] | None:
        source = self._source(BASIC, _BASIC_SOURCES)
        info = self._given.get(USER_INFO)
        if source == "SASL_INHERIT":
            return self._login("username", "password")
        if info is None:
            if source is not None:
                missing = "a user and a password in its address" if source == "URL" else self._named(USER_INFO)
                self._tell(
                    "registry-login",
                    f"{self._named(BASIC)} is {source}, but the registry has no {missing}",
                    "write basic-auth.user-info=USER:${env:PASSWORD}, or remove it",
                )
            return None
        user, colon, password = info.partition(":")
        if not colon and not has_reference(info):
            self._tell(
                "registry-login",
                f"{self._named(USER_INFO)} has no colon",
                "write USER:PASSWORD, or a reference to that",
            )
        return user, password

    def _login(self, *names: str) -> tuple[str, str] | None:
        """The user and the password of the Kafka clients."""
        text = self._given.get(_JAAS)
        found: Mapping[str, str] = {}
        if text is not None:
            try:
                found = parse(text).options
            except JaasError as e:
                if not has_reference(text):
                    self._tell("registry-login", f"{_JAAS!r} cannot be read {e}", "correct it")
                return None
        user, password = (found.get(name) or self._given.get(f"sasl.{name}") for name in names)
        if user is None or password is None:
            self._tell(
                "registry-login",
                f"{self._named(BASIC if names[0] == 'username' else BEARER)} takes the user of the Kafka clients, but "
                f"the cluster has no {_JAAS!r} with {listing(names)}",
                "add it to the cluster's properties, or write basic-auth.credentials-source=USER_INFO",
            )
            return None
        return user, password

    def _bearer(self) -> tuple[str | None, OAuth | None]:
        source = self._source(BEARER, _BEARER_SOURCES) or ("STATIC_TOKEN" if TOKEN in self._given else None)
        match source:
            case "STATIC_TOKEN":
                if TOKEN not in self._given:
                    self._tell(
                        "registry-login",
                        f"{self._named(BEARER)} is STATIC_TOKEN, but there is no {TOKEN!r}",
                        "write bearer-auth.token=${env:TOKEN}",
                    )
                return self._given.get(TOKEN), None
            case "OAUTHBEARER":
                missing = [name for name in (_ISSUER, _ID, _SECRET) if not self._given.get(name)]
                if missing:
                    self._tell(
                        "registry-login",
                        f"{self._named(BEARER)} is OAUTHBEARER, but there is no {listing(missing)}",
                        "add what is missing",
                    )
                    return None, None
                given = self._given
                return None, OAuth(given[_ISSUER], given[_ID], given[_SECRET], given.get(_SCOPE, ""))
            case "SASL_OAUTHBEARER_INHERIT":
                login, url = self._login("clientId", "clientSecret"), self._given.get(_ENDPOINT)
                if login is not None and url is None:
                    self._tell(
                        "registry-login",
                        f"{self._named(BEARER)} takes the tokens of the Kafka clients, but the cluster has no "
                        f"{_ENDPOINT!r}",
                        "add it to the cluster's properties, or write bearer-auth.credentials-source=OAUTHBEARER",
                    )
                return None, OAuth(url, *login, scope=self._given.get(_SCOPE, "")) if login and url else None
            case _:
                return None, None

    def _tls(self) -> Tls:
        algorithm = self._given.get("ssl.endpoint.identification.algorithm", "https").lower()
        if algorithm not in ("", "none", "https") and not has_reference(algorithm):
            self._tell(
                "registry-setting-value",
                f"'ssl.endpoint.identification.algorithm' has the value {algorithm!r}",
                "give https, or an empty text to switch the check of the host's name off",
            )
        key, chain = self._given.get("ssl.keystore.key", ""), self._given.get("ssl.keystore.certificate.chain", "")
        if bool(key) != bool(chain):
            self._tell("tls-store", "a key and its certificates go together", "write both, or neither")
        return Tls(
            truststore=self._store("truststore"),
            keystore=self._store("keystore"),
            authorities=self._given.get("ssl.truststore.certificates", ""),
            key=key,
            chain=chain,
            password=self._given.get("ssl.key.password"),
            checks_host=algorithm == "https",
        )

    def _store(self, which: Which) -> Store | None:
        name = f"ssl.{which}.location"
        location, password = self._given.get(name), self._given.get(f"ssl.{which}.password")
        if location is None:
            if password is not None:
                message = f"{self._named(f'ssl.{which}.password')} is given without a store"
                self._tell("tls-store", message, f"write {name}, or remove it")
            return None
        if told := unreachable(location):
            self._tell(
                "tls-store",
                f"{self._named(name)} is {location!r}: {told}",
                "copy the file to the driver and to every executor and write its path, or install a fetcher",
            )
        ending = location.lower()
        kind = "PEM" if ending.endswith((".pem", ".crt", ".cer")) else "PKCS12" if ending.endswith(_P12) else "JKS"
        return Store(
            which, location, self._given.get(f"ssl.{which}.type", kind), password, self._given.get(_KEY_PASSWORD)
        )

    def _proxy(self) -> str | None:
        host, port = self._given.get("proxy.host"), self._given.get("proxy.port")
        if host is None:
            return None
        return f"http://{host}" if port is None else f"http://{host}:{port}"


_P12 = (".p12", ".pfx")
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105  # the name of a setting
