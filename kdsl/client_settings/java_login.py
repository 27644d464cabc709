"""Logins for Java's clients: Kerberos in all its spellings, tokens, and librdkafka's user name and password.

All of them become one ``sasl.jaas.config``. What Java reads from system properties (the path of krb5.conf, the URLs
that tokens may come from) is returned separately, for the code that starts or controls the JVM.
"""

from __future__ import annotations

import attrs

from kdsl.client_settings.cloud_logins import AWS_MECHANISM, CLIENT_HANDLER, CLOUDS
from kdsl.client_settings.draft import JAAS, SettingsDraft
from kdsl.client_settings.kerberos import CONNECTOR, FLINK, for_kafka, warn_of_unused_logins
from kdsl.client_settings.key_files import scheme
from kdsl.client_settings.machine import Machine
from kdsl.secrets.jaas import MODULES, Login

KRB5 = "java.security.krb5.conf"
TOKEN_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"  # noqa: S105

_SERVICE = "sasl.kerberos.service.name"
_OAUTH = "sasl.oauthbearer."
_HANDLER = "sasl.login.callback.handler.class"
_DEFAULT_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_URL = f"{_OAUTH}token.endpoint.url"
_CREDENTIALS = {
    "clientId": f"{_OAUTH}client.credentials.client.id",
    "clientSecret": f"{_OAUTH}client.credentials.client.secret",
    "scope": f"{_OAUTH}scope",
}


def add_java_login(draft: SettingsDraft, own: dict[str, str], machine: Machine | None) -> dict[str, str]:
    """Set the JAAS configuration of a draft for Java, and what else its login needs.

    It is the user's, or made from librdkafka's user and password, or for tokens, AWS or Kerberos from their settings.
    Problems are recorded in the draft.

    Args:
        draft: The translation in progress.
        own: The properties that only librdkafka has; those of a login are removed from it.
        machine: Finds key files; without it no file is read.

    Returns:
        The system properties that the JVM of the client needs.
    """
    if draft.login is not None:
        draft.settings[JAAS] = draft.login.text()
    mechanism = draft.java.get("sasl.mechanism", "GSSAPI").upper()
    user, password = own.pop("sasl.username", None), own.pop("sasl.password", None)
    if user is not None and password is not None and draft.login is None:
        module = MODULES["ScramLoginModule" if mechanism.startswith("SCRAM") else "PlainLoginModule"]
        draft.settings[JAAS] = Login(module, {"username": user, "password": password}).text()
    if mechanism == "OAUTHBEARER":
        return _add_token_login(draft)
    if mechanism == AWS_MECHANISM and not draft.is_unresolved(JAAS):  # its jar must be in the session
        draft.settings.setdefault(JAAS, Login(MODULES["IAMLoginModule"], {}).text())
        draft.settings.setdefault(CLIENT_HANDLER, CLOUDS["aws_msk_iam"].java[0])
    return _add_kerberos_login(draft, own, machine, gssapi=mechanism == "GSSAPI")


def _add_kerberos_login(
    draft: SettingsDraft, own: dict[str, str], machine: Machine | None, *, gssapi: bool
) -> dict[str, str]:
    """Set the login of Kerberos in the draft, unless the user has; return the system property for krb5.conf, if set."""
    login_options = {
        key: text
        for key in ("principal", "keytab")
        if (text := draft.java.get(CONNECTOR + key) or own.pop(f"sasl.kerberos.{key}", None))
    }
    krb5 = draft.java.get(f"{CONNECTOR}krb5")
    if not login_options and for_kafka(draft):
        login_options = {key: draft.java[FLINK + key] for key in ("principal", "keytab") if FLINK + key in draft.java}
    protocol = draft.java.get("security.protocol", "PLAINTEXT")
    if warn_of_unused_logins(draft, gssapi=gssapi) or not gssapi:
        return {}
    login = draft.login
    if JAAS not in draft.settings:
        _add_krb5_login(draft, login_options, machine)
    elif login is not None and (keytab := login.options.get("keyTab")) and scheme(keytab):
        path = _locate(draft, JAAS, f"the keyTab of {JAAS!r}", keytab, machine)
        draft.settings[JAAS] = attrs.evolve(login, options={**login.options, "keyTab": path}).text()
    if protocol.startswith("SASL_") and _SERVICE not in draft.java and not (login and login.options.get("serviceName")):
        draft.settings[_SERVICE] = "kafka"
    if krb5 is None:
        return {}
    return {KRB5: _locate(draft, "connector.kerberos.krb5", "'connector.kerberos.krb5'", krb5, machine)}


def _add_krb5_login(draft: SettingsDraft, login_options: dict[str, str], machine: Machine | None) -> None:
    """Set the JAAS configuration for a principal and a keytab (see `_locate`), or for a ticket cache.

    A principal alone uses the ticket cache if Flink's login asks for the cache, or is for Kafka and does not turn the
    cache off; otherwise it is recorded as an error, as a keytab alone is. With neither, the ticket cache is used if
    Flink's login is for Kafka and does not turn the cache off; otherwise nothing is set.
    """
    if len(login_options) == 1:
        (present,) = login_options
        missing = "keytab" if present == "principal" else "principal"
        default = "true" if for_kafka(draft) else "false"
        if present == "principal" and draft.java.get(f"{FLINK}use-ticket-cache", default) == "true":
            _use_ticket_cache(draft, login_options["principal"])
            return
        draft.add_error(
            "sasl-kerberos",
            f"the Kerberos {present} is set without its {missing}",
            f"write connector.kerberos.{missing}, or a complete sasl.jaas.config",
            property=f"connector.kerberos.{present}",
        )
    elif login_options:
        options = {
            "useKeyTab": "true",
            "storeKey": "true",
            "keyTab": _locate(
                draft, "connector.kerberos.keytab", "the Kerberos keytab", login_options["keytab"], machine
            ),
            "principal": login_options["principal"],
        }
        draft.settings[JAAS] = Login(MODULES["Krb5LoginModule"], options).text()
    elif for_kafka(draft) and draft.java.get(f"{FLINK}use-ticket-cache", "true") == "true":
        _use_ticket_cache(draft, None)


def _use_ticket_cache(draft: SettingsDraft, principal: str | None) -> None:
    """Set the JAAS configuration to a Kerberos login with the ticket cache, of a principal unless it is None."""
    options = {"useTicketCache": "true", "renewTGT": "true", "doNotPrompt": "true"}
    draft.settings[JAAS] = Login(
        MODULES["Krb5LoginModule"], {**options, **({"principal": principal} if principal else {})}
    ).text()


def _locate(draft: SettingsDraft, name: str, what: str, location: str, machine: Machine | None) -> str:
    """Find the path of a key file: a URL is fetched; a path stays unchanged, because Java reads it on every machine."""
    unreachable = draft.add_unreachable("sasl-kerberos", name, location, what)
    if unreachable or machine is None or scheme(location) is None:
        return location
    return draft.attempt(lambda: machine.find_file(location)) or location


def _add_token_login(draft: SettingsDraft) -> dict[str, str]:
    """Move the client's credentials to the options of the login module, as Kafka 3.9 needs them.

    The result is the system property that allows the URL of the tokens.
    """
    url = draft.java.get(_URL)
    if url is None or draft.is_unresolved(JAAS):
        return {}
    options = dict(draft.login.options) if draft.login else {}
    for option, name in _CREDENTIALS.items():
        if name in draft.java:
            options[option] = draft.java[name]
            draft.settings.pop(name, None)
    module = draft.login.module if draft.login else MODULES["OAuthBearerLoginModule"]
    draft.settings[JAAS] = Login(module, options).text()
    draft.settings.setdefault(_HANDLER, _DEFAULT_HANDLER)
    return {TOKEN_URLS: url}
