"""Logins for Java's clients: Kerberos in each of the ways that it is written, tokens, librdkafka's user and password.

All of them become one ``sasl.jaas.config``. What Java reads from the properties of its JVM (where krb5.conf is, which
addresses tokens may come from) is told apart, for whoever starts or has the JVM.
"""

from __future__ import annotations

from kdsl.client.draft import JAAS, Draft
from kdsl.client.jaas import MODULES, Login
from kdsl.client.machine import Machine
from kdsl.secrets import has_reference

KRB5 = "java.security.krb5.conf"
TOKEN_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"  # noqa: S105

_SERVICE = "sasl.kerberos.service.name"
_CONNECTOR = "connector.kerberos."
_FLINK = "security.kerberos.login."
_OAUTH = "sasl.oauthbearer."
_HANDLER = "sasl.login.callback.handler.class"
_DEFAULT_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_URL = f"{_OAUTH}token.endpoint.url"
_CREDENTIALS = {
    "clientId": f"{_OAUTH}client.credentials.client.id",
    "clientSecret": f"{_OAUTH}client.credentials.client.secret",
    "scope": f"{_OAUTH}scope",
}


def java_login(draft: Draft, own: dict[str, str], machine: Machine | None) -> dict[str, str]:
    """Complete the login of a draft for Java.

    Args:
        draft: The translation so far.
        own: librdkafka's own properties; those of a login are taken out.
        machine: Finds key files; without it none is looked at.

    Returns:
        The system properties that the JVM of the client needs.
    """
    if draft.login is not None:
        draft.settings[JAAS] = draft.login.text()
    mechanism = draft.given.get("sasl.mechanism", "GSSAPI").upper()
    user, password = own.pop("sasl.username", None), own.pop("sasl.password", None)
    if user is not None and password is not None and draft.login is None:
        module = MODULES["ScramLoginModule" if mechanism.startswith("SCRAM") else "PlainLoginModule"]
        draft.settings[JAAS] = Login(module, {"username": user, "password": password}).text()
    if mechanism == "OAUTHBEARER":
        return _tokens(draft)
    return _kerberos(draft, own, machine, gssapi=mechanism == "GSSAPI")


def _kerberos(draft: Draft, own: dict[str, str], machine: Machine | None, *, gssapi: bool) -> dict[str, str]:
    found = {
        key: text
        for key in ("principal", "keytab")
        if (text := draft.given.get(_CONNECTOR + key) or own.pop(f"sasl.kerberos.{key}", None))
    }
    krb5 = draft.given.get(f"{_CONNECTOR}krb5")
    if not found and _for_kafka(draft):
        found = {key: draft.given[_FLINK + key] for key in ("principal", "keytab") if _FLINK + key in draft.given}
    protocol = draft.given.get("security.protocol", "PLAINTEXT")
    asked = [name for name in draft.given if name.startswith(_CONNECTOR)]
    if asked and not (gssapi and (protocol.startswith("SASL_") or has_reference(protocol))):
        draft.warn(
            "client-setting-unused",
            f"{', '.join(map(repr, asked))} without effect, since 'security.protocol' is {protocol!r} and "
            f"'sasl.mechanism' is {draft.given.get('sasl.mechanism', 'GSSAPI')!r}",
            "write security.protocol=SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism=GSSAPI, or remove them",
        )
        return {}
    if not gssapi:
        return {}
    if JAAS not in draft.settings:
        _krb5_login(draft, found, machine)
    login = draft.login
    if (
        protocol.startswith("SASL_")
        and _SERVICE not in draft.given
        and not (login and login.options.get("serviceName"))
    ):
        draft.settings[_SERVICE] = "kafka"
    if krb5 is None:
        return {}
    return {KRB5: _path(draft, krb5, machine)}


def _krb5_login(draft: Draft, found: dict[str, str], machine: Machine | None) -> None:
    if len(found) == 1:
        (given,) = found
        missing = "keytab" if given == "principal" else "principal"
        ticket = _for_kafka(draft) or draft.given.get(f"{_FLINK}use-ticket-cache") == "true"
        if given == "principal" and ticket:
            _cached_ticket(draft, found["principal"])
            return
        draft.tell(
            "sasl-kerberos",
            f"the Kerberos {given} is given without its {missing}",
            f"write connector.kerberos.{missing}, or a whole sasl.jaas.config",
        )
    elif found:
        options = {
            "useKeyTab": "true",
            "storeKey": "true",
            "keyTab": _path(draft, found["keytab"], machine),
            "principal": found["principal"],
        }
        draft.settings[JAAS] = Login(MODULES["Krb5LoginModule"], options).text()
    elif _for_kafka(draft) and draft.given.get(f"{_FLINK}use-ticket-cache", "true") == "true":
        _cached_ticket(draft, None)


def _cached_ticket(draft: Draft, principal: str | None) -> None:
    options = {"useTicketCache": "true", "renewTGT": "true", "doNotPrompt": "true"}
    draft.settings[JAAS] = Login(
        MODULES["Krb5LoginModule"], {**options, **({"principal": principal} if principal else {})}
    ).text()


def _for_kafka(draft: Draft) -> bool:
    """Whether Flink's Kerberos login is for Kafka clients, too."""
    contexts = draft.given.get(f"{_FLINK}contexts", "")
    return "KafkaClient" in [part.strip() for part in contexts.split(",")]


def _path(draft: Draft, location: str, machine: Machine | None) -> str:
    """Where a key file is: an address is fetched; a path stays as it is, for Java reads it on every machine."""
    if machine is None or "://" not in location:
        return location
    return draft.tried(lambda: machine.path(location)) or location


def _tokens(draft: Draft) -> dict[str, str]:
    """The identity provider as Java 3.9's clients, too, are told of it: the credentials among the login's options."""
    url = draft.given.get(_URL)
    if url is None or draft.hidden(JAAS):
        return {}
    options = dict(draft.login.options) if draft.login else {}
    for option, name in _CREDENTIALS.items():
        if name in draft.given:
            options[option] = draft.given[name]
            draft.settings.pop(name, None)
    module = draft.login.module if draft.login else MODULES["OAuthBearerLoginModule"]
    draft.settings[JAAS] = Login(module, options).text()
    draft.settings.setdefault(_HANDLER, _DEFAULT_HANDLER)
    return {TOKEN_URLS: url}
