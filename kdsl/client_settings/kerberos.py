"""Logins by Kerberos, which Java's clients support and the librdkafka in confluent-kafka's wheels does not."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.client_settings.draft import SettingsDraft, draft_settings
from kdsl.secrets import has_reference

CONNECTOR = "connector.kerberos."
FLINK = "security.kerberos.login."
_LOGINS = (CONNECTOR, FLINK, "sasl.kerberos.")
_MODULE = "Krb5LoginModule"


def needs_java(properties: Mapping[str, str]) -> bool:
    """Whether only Java's clients can log in with these settings.

    That is so if ``security.protocol`` uses SASL, or is a reference, and ``sasl.mechanism`` is GSSAPI. A missing
    mechanism means GSSAPI as well, but counts only beside a setting of a Kerberos login; without one it is more likely
    an oversight.

    Args:
        properties: Java's names (or librdkafka's) and their values, without the prefix ``properties.``.
    """
    draft = draft_settings(properties, "consumer", None)
    protocol = draft.java.get("security.protocol", "PLAINTEXT")
    if not (protocol.startswith("SASL_") or has_reference(protocol)):
        return False
    mechanism = draft.value("sasl.mechanism")
    return _has_kerberos_login(draft) if mechanism is None else mechanism.upper() == "GSSAPI"


def warn_of_unused_logins(draft: SettingsDraft, *, gssapi: bool) -> bool:
    """Warn of settings for a Kerberos login that have no effect.

    Args:
        draft: The translation in progress.
        gssapi: Whether the mechanism is GSSAPI.

    Returns:
        Whether the whole login is unused, because the clients log in without Kerberos.
    """
    protocol = draft.java.get("security.protocol", "PLAINTEXT")
    logins = [name for name in draft.java if name.startswith((CONNECTOR, FLINK))]
    if logins and not (gssapi and (protocol.startswith("SASL_") or has_reference(protocol))):
        draft.add_warning(
            "client-setting-unused",
            f"{', '.join(map(repr, logins))} without effect, because 'security.protocol' is {protocol!r} and "
            f"'sasl.mechanism' is {draft.java.get('sasl.mechanism', 'GSSAPI')!r}",
            "write security.protocol=SASL_PLAINTEXT or SASL_SSL, and sasl.mechanism=GSSAPI, or remove them",
            property=logins[0],
        )
        return True
    flink = [name for name in logins if name in (f"{FLINK}principal", f"{FLINK}keytab")]
    if flink and not for_kafka(draft):
        contexts = draft.java.get(f"{FLINK}contexts")
        state = "is not set" if contexts is None else f"is {contexts!r}"
        draft.add_warning(
            "client-setting-unused",
            f"{', '.join(map(repr, flink))} without effect, because '{FLINK}contexts' {state}: the login is not for "
            "Kafka",
            f"write {FLINK}contexts=KafkaClient, or remove them",
            property=flink[0],
        )
    return False


def for_kafka(draft: SettingsDraft) -> bool:
    """Whether Flink's Kerberos login is for Kafka clients: its contexts contain KafkaClient. Nothing is recorded."""
    contexts = draft.java.get(f"{FLINK}contexts", "")
    return "KafkaClient" in [part.strip() for part in contexts.split(",")]


def _has_kerberos_login(draft: SettingsDraft) -> bool:
    """Whether a setting of a Kerberos login is present, or the JAAS configuration names its login module."""
    named = any(name.startswith(_LOGINS) for name in (*draft.java, *draft.librdkafka))
    return named or (draft.login is not None and draft.login.kind == _MODULE)
