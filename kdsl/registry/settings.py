"""The settings of the registry client, with the names and the meaning that they have in Java's client.

A setting has three spellings with the same meaning: Java's (``basic.auth.user.info``), that of Flink's format options
(``basic-auth.user-info``), and that in the properties of a Kafka client (``schema.registry.basic.auth.user.info``).
While planning, no reference is resolved and no file is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import attrs

from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.cluster import Registry, login_of
from kdsl.errors import Problem, listing, nearest
from kdsl.secrets import has_reference
from kdsl.secrets.hiding import redact_addresses, remove_login
from kdsl.secrets.jaas import JaasError, parse_jaas

BASIC = "basic.auth.credentials.source"
BEARER = "bearer.auth.credentials.source"
USER_INFO = "basic.auth.user.info"
TOKEN = "bearer.auth.token"  # noqa: S105  # the name of a setting
_ISSUER = "bearer.auth.issuer.endpoint.url"
_ID, _SECRET, _SCOPE = "bearer.auth.client.id", "bearer.auth.client.secret", "bearer.auth.scope"
_OWN_TOKENS = f"OAUTHBEARER in its place, and set {listing((_ISSUER, _ID, _SECRET))}"
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
"""The numbers with their defaults. Java's client retries three times; six retries outlast a registry's restart."""

_BASIC_SOURCES = ("URL", "USER_INFO", "SASL_INHERIT")
_BEARER_SOURCES = ("STATIC_TOKEN", "OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT")
_INLINE = {
    "truststore": ("ssl.truststore.certificates",),
    "keystore": ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
}
"""The settings for the content of a PEM store, instead of its location."""
_TLS = (
    *(f"ssl.{which}.{what}" for which in _INLINE for what in ("location", "password", "type")),
    *(name for names in _INLINE.values() for name in names),
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
    """Where to request tokens (OAuth 2.0, client credentials), and with which credentials."""

    url: str = attrs.field(repr=redact_addresses)
    id: str
    secret: str = attrs.field(repr=False)
    scope: str = ""


@attrs.frozen
class Settings:
    """The parsed settings of the registry client.

    Attributes:
        urls: The registry's URLs, in the order in which they are tried, without logins.
        basic: The user and the password.
        token: The token.
        oauth: Where tokens come from.
        tls: The TLS settings of a Kafka client.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for an answer.
        retries: How often a request is repeated.
        wait: Seconds before the first retry, doubled before each further one.
        max_wait: The maximum of these seconds.
        proxy: The URL of a proxy.
        headers: Further headers of each request.
    """

    urls: tuple[str, ...]
    basic: tuple[str, str] | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    oauth: OAuth | None = None
    tls: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    retries: int = 6
    wait: float = 1.0
    max_wait: float = 20.0
    proxy: str | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


def canonical(name: str) -> str:
    """A setting's name without ``schema.registry.`` and, unless it is that of a header, with dots for dashes."""
    bare = name.removeprefix(_PREFIX)
    return bare if bare.startswith(_HEADER) else bare.replace("-", ".")


def is_login(name: str) -> bool:
    """Whether a setting is part of the login by user or token (``basic.auth.…``, ``bearer.auth.…``).

    The settings for the logical cluster and the identity pool are not, and those of the Kafka clients' login neither.
    """
    key = canonical(name)
    return key.startswith(("basic.auth.", "bearer.auth.")) and key not in (_CLUSTER, _POOL)


def inherits_login(registry: Registry | None) -> bool:
    """Whether the registry's settings say that it uses the login of the Kafka clients; False without a registry."""
    properties = {} if registry is None else registry.properties
    return any(canonical(name) in (BASIC, BEARER) and "INHERIT" in str(value) for name, value in properties.items())


def registry_problems(registry: Registry) -> tuple[Problem, ...]:
    """Everything that is wrong with a registry's settings; references are checked but not resolved."""
    return read_settings(registry)[1]


def read_settings(registry: Registry, resolve: Resolve = str) -> tuple[Settings, tuple[Problem, ...]]:
    """Read a registry's settings.

    Args:
        registry: The registry.
        resolve: Replaces the references in a string; without it they stay.

    Returns:
        The settings, and what is wrong with them: errors and warnings. A number that is wrong has its default.

    Raises:
        SecretError: ``resolve`` cannot resolve a reference.
    """
    reader = _SettingsReader(registry, resolve)
    return reader.settings(), tuple(reader.problems)


class _SettingsReader:
    def __init__(self, registry: Registry, resolve: Resolve) -> None:
        """Store addresses and settings with references replaced by `resolve`, whose errors pass.

        A login in an address is removed from it, and is the user and password unless these are set.
        """
        self.problems: list[Problem] = []
        self._values: dict[str, str] = {}
        self._names: dict[str, str] = {}
        address = resolve(registry.url)
        user_info = login_of(address)  # of an address that a reference was replaced by
        urls = (address if user_info is None else remove_login(address)).split(",")
        self._urls = tuple(part for url in urls if (part := url.strip().rstrip("/")))
        for name, text in registry.properties.reveal().items():
            self._add_setting(name, resolve(text))
        if user_info is not None and USER_INFO not in self._values:
            self._values[USER_INFO] = user_info

    def _add_setting(self, name: str, text: str) -> None:
        """Store a setting by its canonical name.

        An unknown one is stored, too, and recorded as a warning; one that contradicts an earlier spelling is
        recorded as a problem, and the first stays.
        """
        key = canonical(name)
        if key in self._values and self._values[key] != text:
            message = f"{self._names[key]!r} and {name!r} mean the same but differ"
            self._add_problem("registry-setting-twice", message, "keep one of the two")
            return
        self._values[key], self._names[key] = text, name
        if key not in NAMES and not key.startswith(_HEADER):
            self._add_problem(
                "registry-setting-unknown",
                f"the registry's client has no setting {name!r}{nearest(key, NAMES)}",
                f"use one of its settings: {listing(NAMES)}, {_HEADER}NAME",
                warning=True,
            )

    def settings(self) -> Settings:
        """Read all settings; problems are recorded.

        A wrong number has its default; other wrong settings are None where nothing can be read, else as they are.
        """
        self._check_urls()
        numbers = {name: self._read_number(name, default) for name, default in NUMBERS.items()}
        basic, (token, oauth) = self._read_basic(), self._bearer()
        if basic and (token or oauth):
            user_setting = USER_INFO if USER_INFO in self._values else BASIC
            token_setting = TOKEN if TOKEN in self._values else BEARER
            self._add_problem(
                "registry-login",
                f"the registry has a user ({self._quote_name(user_setting)}) and a token "
                f"({self._quote_name(token_setting)})",
                "remove one of the two",
            )
        named = {key: key.removeprefix(_HEADER) for key in self._values if key.startswith(_HEADER)}
        more = {_CLUSTER: "target-sr-cluster", _POOL: "Confluent-Identity-Pool-Id"}
        named |= {key: header for key, header in more.items() if key in self._values}
        self._check_headers({**named, **({TOKEN: "Authorization"} if TOKEN in self._values else {})})
        headers = {header: self._values[key] for key, header in named.items()}
        return Settings(
            urls=self._urls,
            basic=basic,
            token=token,
            oauth=oauth,
            tls=self._read_tls(),
            connect_timeout=numbers["http.connect.timeout.ms"] / 1000,
            read_timeout=numbers["http.read.timeout.ms"] / 1000,
            retries=numbers["max.retries"],
            wait=numbers["retries.wait.ms"] / 1000,
            max_wait=numbers["retries.max.wait.ms"] / 1000,
            proxy=self._read_proxy(),
            headers=headers,
        )

    def _check_headers(self, named: Mapping[str, str]) -> None:
        """Record a problem for each header that cannot be sent: the client would fail later, and quote its value."""
        for key, name in named.items():
            text = self._values[key]
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                self._add_problem(
                    "registry-header",
                    f"{self._quote_name(key)} is not a valid name of an HTTP header",
                    "write the header's name",
                )
            elif not has_reference(text) and not fits_header(text):
                self._add_problem(
                    "registry-header",
                    f"the value of {self._quote_name(key)} has a character that a header cannot contain, such as "
                    "a line end or a "
                    "letter outside ASCII",
                    "write only the value; a variable or file may end with a line end",
                )

    def _add_problem(self, code: str, message: str, fix: str, *, warning: bool = False) -> None:
        """Add a problem or a warning."""
        self.problems.append(Problem(code, message, fix, severity="warning" if warning else "error"))

    def _quote_name(self, name: str) -> str:
        """Return the name of a setting in quotes, as the user spelled it."""
        return repr(self._names.get(name, name))

    def _check_urls(self) -> None:
        """Report a missing address, and addresses without references that are not http or https URLs."""
        if not self._urls:
            self._add_problem("registry-url", "the registry has no address", "write url: https://HOST:PORT")
        for url in self._urls:
            if not has_reference(url) and not _is_address(url):
                shown = remove_login(url)
                self._add_problem(
                    "registry-url",
                    f"the address of the registry {shown!r} is not an http or https URL",
                    "write https://HOST:PORT, several separated by commas",
                )

    def _read_number(self, name: str, default: int) -> int:
        """Read a number; the default if it is not set, is a reference, or is wrong, which is recorded as a problem."""
        text = self._values.get(name)
        if text is None or has_reference(text):
            return default
        if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
            self._add_problem(
                "registry-setting-value",
                f"{self._quote_name(name)} has the value {text!r}",
                "use an integer, 0 or more",
            )
            return default
        return int(text)

    def _source(self, name: str, sources: tuple[str, ...]) -> str | None:
        """Read where a login comes from, in upper case.

        None if it is not set, is a reference, or is not one of ``sources``, which is recorded as a problem.
        """
        text = self._values.get(name)
        if text is None or has_reference(text):
            return None
        source = text.strip().upper()
        if source in sources:
            return source
        detail = ", which names a Java class" if source == "CUSTOM" else ""
        self._add_problem(
            "registry-login",
            f"{self._quote_name(name)} is {text!r}{detail}{nearest(source, sources)}",
            f"write one of {listing(sources)}",
        )
        return None

    def _read_basic(self) -> tuple[str, str] | None:
        """Read user and password; None if there are none, which is a problem if a source for them is set.

        Problems are recorded, not raised. The source SASL_INHERIT means those of the Kafka clients (`_inherit_login`).

        A value without a colon is recorded as a problem unless it is a reference, and returned as a user without a
        password.
        """
        source = self._source(BASIC, _BASIC_SOURCES)
        info = self._values.get(USER_INFO)
        if source == "SASL_INHERIT":
            return self._inherit_login("username", "password")
        if info is None:
            if source is not None:
                missing = "the registry's address has no user" if source == "URL" else f"there is no {USER_INFO!r}"
                self._add_problem(
                    "registry-login",
                    f"{self._quote_name(BASIC)} is {source}, but {missing}",
                    f"write basic-auth.user-info=USER:${{env:PASSWORD}}, or remove {self._quote_name(BASIC)}",
                )
            return None
        user, colon, password = info.partition(":")
        if not colon and not has_reference(info):
            self._add_problem(
                "registry-login",
                f"{self._quote_name(USER_INFO)} has no colon",
                "write USER:PASSWORD, or a reference to that",
            )
        return user, password

    def _inherit_login(self, *names: str) -> tuple[str, str] | None:
        """Return the options ``names`` of the Kafka clients' login: user and password, or a client's id and secret.

        They come from the JAAS configuration or the ``sasl.*`` settings. None if one is missing or the configuration
        cannot be parsed; both are recorded as problems, except a configuration that is a reference.
        """
        text = self._values.get(_JAAS)
        options: Mapping[str, str] = {}
        if text is not None:
            try:
                options = parse_jaas(text).options
            except JaasError as e:
                if not has_reference(text):
                    module = 'LoginModuleClass required option="value" option="value";'
                    self._add_problem("registry-login", f"{_JAAS!r} cannot be parsed {e}", f"write: {module}")
                return None
        user, password = (options.get(name) or self._values.get(f"sasl.{name}") for name in names)
        if user is None or password is None:
            option, other = (
                (BASIC, f"USER_INFO in its place, and set {USER_INFO!r}")
                if names[0] == "username"
                else (BEARER, _OWN_TOKENS)
            )
            self._add_problem(
                "registry-login",
                f"{self._quote_name(option)} uses the login of the Kafka clients, but the cluster has no {_JAAS!r} "
                f"with {listing(names)}",
                f"add it to the cluster's properties, or write {other}",
            )
            return None
        return user, password

    def _bearer(self) -> tuple[str | None, OAuth | None]:
        """Return a fixed token, and where tokens are requested: at most one is set, the other is None.

        Both are None without such a login. Problems are recorded.
        """
        source = self._source(BEARER, _BEARER_SOURCES) or ("STATIC_TOKEN" if TOKEN in self._values else None)
        match source:
            case "STATIC_TOKEN":
                if TOKEN not in self._values:
                    self._add_problem(
                        "registry-login",
                        f"{self._quote_name(BEARER)} is STATIC_TOKEN, but there is no {TOKEN!r}",
                        "write bearer-auth.token=${env:TOKEN}",
                    )
                return self._values.get(TOKEN), None
            case "OAUTHBEARER":
                missing = [name for name in (_ISSUER, _ID, _SECRET) if not self._values.get(name)]
                if missing:
                    self._add_problem(
                        "registry-login",
                        f"{self._quote_name(BEARER)} is OAUTHBEARER, but there is no {listing(missing)}",
                        f"set {listing(missing)}",
                    )
                    return None, None
                values = self._values
                self._check_provider(_ISSUER)
                return None, OAuth(values[_ISSUER], values[_ID], values[_SECRET], values.get(_SCOPE, ""))
            case "SASL_OAUTHBEARER_INHERIT":
                login, url = self._inherit_login("clientId", "clientSecret"), self._values.get(_ENDPOINT)
                if login is not None and url is None:
                    self._add_problem(
                        "registry-login",
                        f"{self._quote_name(BEARER)} takes the tokens of the Kafka clients, but the cluster has no "
                        f"{_ENDPOINT!r}",
                        f"add it to the cluster's properties, or write {_OWN_TOKENS}",
                    )
                if url is not None:
                    self._check_provider(_ENDPOINT)
                return None, OAuth(url, *login, scope=self._values.get(_SCOPE, "")) if login and url else None
            case _:
                return None, None

    def _check_provider(self, name: str) -> None:
        """Report an address of an identity provider that is not an http or https URL."""
        url = self._values[name]
        if not has_reference(url) and not _is_address(url):
            self._add_problem(
                "registry-login",
                f"{self._quote_name(name)} is {redact_addresses(url)!r}, which is not an http or https URL",
                "write https://HOST/PATH of the identity provider",
            )

    def _read_tls(self) -> dict[str, str]:
        """Return the TLS settings as those of a Kafka client, whose checks apply; PEM need not be declared here."""
        tls = {name: self._values[name] for name in _TLS if name in self._values}
        for which, contents in _INLINE.items():
            location = tls.get(f"ssl.{which}.location", "").lower()
            if location.endswith((".pem", ".crt", ".cer")) or not tls.keys().isdisjoint(contents):
                tls.setdefault(f"ssl.{which}.type", "PEM")
        tls["security.protocol"] = "SSL"
        self.problems += librdkafka_settings(tls, "consumer").problems
        return tls

    def _read_proxy(self) -> str | None:
        """Read the address of the proxy; None without one, or with a problem, which is recorded."""
        host, port = self._values.get("proxy.host"), self._values.get("proxy.port")
        if host is None:
            return None
        proxy = f"http://{host}" if port is None else f"http://{host}:{port}"
        if not has_reference(proxy) and not _is_address(proxy):
            self._add_problem(
                "registry-setting-value",
                f"{self._quote_name('proxy.host')} and {self._quote_name('proxy.port')} are not a valid host and port",
                "write the host name and the port number of the proxy",
            )
            return None
        return proxy


def _is_address(url: str) -> bool:
    """Whether a string is an http or https URL; httpx, if it is installed, also refuses hosts that it cannot call."""
    try:
        parts = urlsplit(url)  # finds unbalanced brackets
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    try:
        import httpx
    except ModuleNotFoundError:
        return True
    try:
        return bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False


def fits_header(text: str) -> bool:
    """Whether an HTTP header can contain a value: printable ASCII, not empty, without spaces at its ends."""
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()
