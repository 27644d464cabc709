"""How clients may log in to a local Kafka: each kind has the settings of the broker and of a client.

The settings of a client come in two forms: for confluent-kafka, and by Java's names, as declarations contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from kdsl.secrets.jaas import MODULES, Login
from kdsl.testing.errors import LocalKafkaError

if TYPE_CHECKING:
    from kdsl.testing.certificates import Certificates
    from kdsl.testing.kerberos import Realm
    from kdsl.testing.tokens import TokenService

Security = Literal[
    "plaintext", "sasl_plain", "scram", "ssl", "mtls", "sasl_ssl", "oauthbearer", "oauth_signed", "kerberos"
]

Users = Mapping[str, str]
"""Passwords by user name."""


class Site:
    """The keys and services that brokers and clients of one local Kafka share; each is created when a kind needs it.

    Args:
        users: Passwords by user name.
        folder: The folder of the keys; None if no kind needs files.
    """

    def __init__(self, users: Users, folder: Path | None = None) -> None:
        self.users, self._folder = dict(users), folder

    def make_folder(self, name: str) -> Path:
        """Create a folder for keys, which only this user may open, and return it.

        Raises:
            LocalKafkaError: This Kafka has no folder for keys.
        """
        if self._folder is None:
            raise LocalKafkaError(
                "this Kafka has no folder for keys before it is started: call start(), or use it in a with statement"
            )
        path = self._folder / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    @cached_property
    def certificates(self) -> Certificates:
        """The authority and the certificates that it signs, created at the first use; see `make_folder` for errors."""
        from kdsl.testing.certificates import Certificates

        return Certificates(self.make_folder("keys"))

    @cached_property
    def tokens(self) -> TokenService:
        """The identity provider, created at the first use without any files, and started by `start`."""
        from kdsl.testing.tokens import TokenService

        return TokenService(self.users)

    @cached_property
    def realm(self) -> Realm:
        """The Kerberos realm, created at the first use, and started by `start`; see `make_folder` for errors."""
        from kdsl.testing.kerberos import Realm

        return Realm(self.make_folder("realm"))

    def start(self, kinds: tuple[Security, ...], mark: str) -> None:
        """Start the KDC, with a keytab for each user, and the identity provider, if these kinds of login need them.

        Raises:
            LocalKafkaError: A required program is missing or fails, or the KDC does not start.
        """
        if "kerberos" in kinds:
            self.realm.start(mark)
            self.realm.keytab("kafka/localhost", "kafka/127.0.0.1")
            for user in self.users:
                self.realm.keytab(user)
        if "oauth_signed" in kinds:
            self.tokens.start()

    def detach(self, mark: str) -> dict[str, int]:
        """Let the services besides the brokers outlive this process; the identity provider moves to its own.

        Args:
            mark: The argument by which a watchdog recognizes its processes.

        Returns:
            The process ids by the kind of service; empty if no kind of login needs one.

        Raises:
            LocalKafkaError: The identity provider does not start in its own process.
        """
        pids = {}
        if "tokens" in self.__dict__:
            pids["identity provider"] = self.tokens.hand_over(mark)
        if "realm" in self.__dict__:
            pids["KDC"] = self.realm.pid
            self.realm.disown()
        return pids

    def stop(self) -> None:
        """Stop the services besides the brokers, if they run, and forget them; the next use creates others."""
        for name in ("realm", "tokens"):
            if name in self.__dict__:
                getattr(self, name).stop()
                del self.__dict__[name]

    def jvm(self, kinds: tuple[Security, ...]) -> dict[str, str]:
        """Return the system properties that the JVM of a broker or a client needs for these kinds of login.

        For signed tokens the file of their public keys is written; the identity provider must be started then.

        Raises:
            LocalKafkaError: As for `make_folder`.
        """
        properties = {}
        if "kerberos" in kinds:
            properties["java.security.krb5.conf"] = str(self.realm.config)
        if "oauth_signed" in kinds:
            properties["org.apache.kafka.sasl.oauthbearer.allowed.urls"] = (
                f"{_write_key_set(self).as_uri()},{self.tokens.url}"
            )
        return properties


@attrs.frozen
class Kind:
    """One kind of login.

    Attributes:
        listener: The listener's name in the broker's properties.
        protocol: Kafka's name of the security protocol.
        broker: The listener's own broker properties, without the ``listener.name.…`` before them.
        client: Returns the settings for a user that a confluent-kafka client needs for this login only; None if
            librdkafka does not support the login.
        java: The same by Java's names.
        mechanism: The SASL mechanism; empty without SASL.
        stored: Users live in the cluster and are put there after its start.
        anonymous: Clients do not log in, so users do not matter.
    """

    listener: str
    protocol: str
    broker: Callable[[Site], dict[str, str]]
    client: Callable[[Site, str], dict[str, str]] | None
    java: Callable[[Site, str], dict[str, str]]
    mechanism: str = ""
    stored: bool = attrs.field(default=False, kw_only=True)
    anonymous: bool = attrs.field(default=False, kw_only=True)

    def client_properties(self, site: Site, user: str) -> dict[str, str] | None:
        """Return all settings of a confluent-kafka client for a user, besides the bootstrap servers.

        It is None if librdkafka does not support the login. Key files are created at the first use.
        """
        if self.client is None:
            return None
        properties = self._method()
        if "SSL" in self.protocol:
            properties["ssl.ca.location"] = str(site.certificates.authority)
        return properties | self.client(site, user)

    def java_properties(self, site: Site, user: str) -> dict[str, str]:
        """Return all settings for a user by Java's names; key files are created at the first use."""
        properties = self._method()
        if "SSL" in self.protocol:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(site.certificates.authority)}
        return properties | self.java(site, user)

    def _method(self) -> dict[str, str]:
        """Return the protocol and the mechanism, which librdkafka and Java call the same."""
        protocol = {} if self.protocol == "PLAINTEXT" else {"security.protocol": self.protocol}
        return {**protocol, **({"sasl.mechanism": self.mechanism} if self.mechanism else {})}


def jaas(module: str, **options: str) -> str:
    """Return the value of ``sasl.jaas.config`` for a login module of `MODULES`, with options."""
    return Login(MODULES[module], options).text()


def _plain_broker(site: Site) -> dict[str, str]:
    """Return the broker's properties for PLAIN, with the passwords of all users."""
    logins = {f"user_{name}": password for name, password in site.users.items()}
    return {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": jaas("PlainLoginModule", **logins)}


def _scram_broker(_: Site) -> dict[str, str]:
    """Return the broker's properties for SCRAM; the users are stored in the cluster."""
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "scram-sha-256.sasl.jaas.config": jaas("ScramLoginModule"),
        "scram-sha-512.sasl.jaas.config": jaas("ScramLoginModule"),
    }


def _ssl_broker(site: Site) -> dict[str, str]:
    """Return the broker's properties for TLS without clients' certificates; keys are created at the first use."""
    keys = site.certificates
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority),
    }


def _mtls_broker(site: Site) -> dict[str, str]:
    """As `_ssl_broker`, and clients need a certificate, whose common name is the user."""
    rules = "RULE:^CN=([^,]*).*$/$1/"
    return {**_ssl_broker(site), "ssl.client.auth": "required", "ssl.principal.mapping.rules": rules}


def _oauth_broker(_: Site) -> dict[str, str]:
    """Return the broker's properties for unsigned tokens, which it accepts from anyone."""
    login = jaas("OAuthBearerLoginModule", unsecuredLoginStringClaim_sub="broker")
    return {"sasl.enabled.mechanisms": "OAUTHBEARER", "oauthbearer.sasl.jaas.config": login}


def _write_key_set(site: Site) -> Path:
    """Write the public keys of the identity provider for the brokers, and return the path."""
    return site.tokens.write_keys(site.make_folder("tokens") / "jwks.json")


def _oauth_signed_broker(site: Site) -> dict[str, str]:
    """As `_oauth_broker`; tokens are checked with the keys of the identity provider, which are written to a file."""
    from kdsl.testing.tokens import AUDIENCE

    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    return {
        **_oauth_broker(site),
        "oauthbearer.sasl.server.callback.handler.class": handler,
        "sasl.oauthbearer.jwks.endpoint.url": _write_key_set(site).as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


def _kerberos_broker(site: Site) -> dict[str, str]:
    """Return the broker's properties for Kerberos; its keytab is created at the first use, by the site's realm."""
    from kdsl.testing.kerberos import REALM, SERVICE

    keytab = str(site.realm.keytab("kafka/localhost", "kafka/127.0.0.1"))
    login = jaas(
        "Krb5LoginModule", useKeyTab="true", storeKey="true", keyTab=keytab, principal=f"{SERVICE}/localhost@{REALM}"
    )
    return {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "gssapi.sasl.jaas.config": login,
    }


def _password_client(site: Site, user: str) -> dict[str, str]:
    """Return librdkafka's properties for a login with a password, which is empty for an unknown user."""
    return {"sasl.username": user, "sasl.password": site.users.get(user, "")}


def _plain_java(site: Site, user: str) -> dict[str, str]:
    """Return Java's properties for PLAIN; the password of an unknown user is empty."""
    return {"sasl.jaas.config": jaas("PlainLoginModule", username=user, password=site.users.get(user, ""))}


def _scram_java(site: Site, user: str) -> dict[str, str]:
    """Return Java's properties for SCRAM; the password of an unknown user is empty."""
    return {"sasl.jaas.config": jaas("ScramLoginModule", username=user, password=site.users.get(user, ""))}


def _mtls_client(site: Site, user: str) -> dict[str, str]:
    """Return librdkafka's properties for the user's certificate, which is created at the first use."""
    store = str(site.certificates.key_store(user))
    return {"ssl.key.location": store, "ssl.certificate.location": store}


def _mtls_java(site: Site, user: str) -> dict[str, str]:
    """Return Java's properties for the user's certificate, which is created at the first use."""
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(site.certificates.key_store(user))}


def _oauth_client(_: Site, user: str) -> dict[str, str]:
    """Return librdkafka's properties for a token that it creates for a user, without a signature."""
    return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={user}"}


def _oauth_java(_: Site, user: str) -> dict[str, str]:
    """Return Java's properties for a token that it creates for a user, without a signature."""
    return {"sasl.jaas.config": jaas("OAuthBearerLoginModule", unsecuredLoginStringClaim_sub=user)}


def _oauth_signed_client(site: Site, user: str) -> dict[str, str]:
    """Return librdkafka's properties for tokens of the site's identity provider, which must be started."""
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": site.tokens.url,
        "sasl.oauthbearer.client.id": user,
        "sasl.oauthbearer.client.secret": site.users.get(user, ""),
    }


def _oauth_signed_java(site: Site, user: str) -> dict[str, str]:
    """Return Java's properties for tokens of the site's identity provider, which must be started."""
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    return {
        "sasl.oauthbearer.token.endpoint.url": site.tokens.url,
        "sasl.login.callback.handler.class": handler,
        "sasl.jaas.config": jaas("OAuthBearerLoginModule", clientId=user, clientSecret=site.users.get(user, "")),
    }


def _kerberos_java(site: Site, user: str) -> dict[str, str]:
    """Return a user's properties for Kerberos, those of kdsl among them; the keytab is created at the first use."""
    from kdsl.testing.kerberos import REALM, SERVICE

    return {
        "sasl.kerberos.service.name": SERVICE,
        "connector.auth.open": "true",
        "connector.kerberos.principal": f"{user}@{REALM}",
        "connector.kerberos.krb5": str(site.realm.config),
        "connector.kerberos.keytab": str(site.realm.keytab(user)),
    }


def _nothing(_: Site, __: str = "") -> dict[str, str]:
    """Return no properties, for a broker or for a client."""
    return {}


KINDS: Mapping[Security, Kind] = {
    "plaintext": Kind("PLAINTEXT", "PLAINTEXT", _nothing, _nothing, _nothing, anonymous=True),
    "sasl_plain": Kind("SASL_PLAIN", "SASL_PLAINTEXT", _plain_broker, _password_client, _plain_java, "PLAIN"),
    "scram": Kind(
        "SCRAM", "SASL_PLAINTEXT", _scram_broker, _password_client, _scram_java, "SCRAM-SHA-512", stored=True
    ),
    "ssl": Kind("SSL", "SSL", _ssl_broker, _nothing, _nothing, anonymous=True),
    "mtls": Kind("MTLS", "SSL", _mtls_broker, _mtls_client, _mtls_java),
    "sasl_ssl": Kind(
        "SASL_SSL",
        "SASL_SSL",
        lambda site: {**_scram_broker(site), **_ssl_broker(site)},
        _password_client,
        _scram_java,
        "SCRAM-SHA-256",
        stored=True,
    ),
    "oauthbearer": Kind("OAUTH", "SASL_PLAINTEXT", _oauth_broker, _oauth_client, _oauth_java, "OAUTHBEARER"),
    "oauth_signed": Kind(
        "OAUTH_SIGNED", "SASL_PLAINTEXT", _oauth_signed_broker, _oauth_signed_client, _oauth_signed_java, "OAUTHBEARER"
    ),
    "kerberos": Kind("KERBEROS", "SASL_PLAINTEXT", _kerberos_broker, None, _kerberos_java, "GSSAPI"),
}
