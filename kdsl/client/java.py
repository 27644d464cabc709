"""Client properties as Java's clients take them, for the transport ``jvm``.

The names stay; what is kdsl's own is taken out, values are brought to Java's spelling, shaded login modules become
Kafka's, and librdkafka's own names become Java's where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from kdsl.client import librdkafka
from kdsl.client.connector import ConnectorSettings, connector_settings
from kdsl.client.draft import JAAS, Draft, Resolve, read, refusal
from kdsl.client.hiding import redact
from kdsl.client.jaas import MODULES, Login
from kdsl.client.model import Client
from kdsl.client.sasl import PROVIDER
from kdsl.client.settings import TABLE
from kdsl.errors import Problem

_ENDPOINT = "ssl.endpoint.identification.algorithm"
_KERBEROS = "connector.kerberos."


@attrs.frozen
class JavaSettings:
    """What client properties mean to Java's clients.

    Attributes:
        settings: The properties to hand on, by Java's names.
        connector: What the connector takes for itself.
        problems: Everything that is wrong (errors) or left out (warnings).
    """

    settings: Mapping[str, str] = attrs.field(repr=lambda m: repr(redact(m)))
    connector: ConnectorSettings
    problems: tuple[Problem, ...] = ()


def java_settings(properties: Mapping[str, str], client: Client, resolve: Resolve | None = None) -> JavaSettings:
    """What client properties mean to a Java client.

    Args:
        properties: Java's names (or librdkafka's own) and their texts, without the prefix ``properties.``.
        client: The kind of client.
        resolve: Replaces references to secrets; without it they stay as they stand.
    """
    draft = read(properties, client, resolve)
    for name, text in draft.given.items():
        row = TABLE[name]
        if name == PROVIDER:
            draft.tell(
                "client-setting-refused",
                f"{PROVIDER!r} cannot be set with transport='jvm': it is a Python function",
                "write sasl.login.callback.handler.class with a Java class, or use transport='librdkafka'",
            )
        elif row.act == "owned":
            draft.problems.append(refusal(row))
        elif row.act != "connector":
            draft.settings[name] = text
    # Java's clients keep names that they do not know, for the classes that they load.
    draft.settings.update(draft.unknown)
    if draft.settings.get(_ENDPOINT, "").lower() == "none":
        draft.settings[_ENDPOINT] = ""
    if draft.login is not None:
        draft.settings[JAAS] = draft.login.text()
    _own_names(draft)
    _kerberos(draft)
    _in_order(draft)
    return JavaSettings(
        MappingProxyType(draft.settings), connector_settings(properties, resolve), tuple(draft.problems)
    )


def _own_names(draft: Draft) -> None:
    """What librdkafka's own names become; a user name and a password become a JAAS text."""
    own = dict(draft.own)
    name, password = own.pop("sasl.username", None), own.pop("sasl.password", None)
    if name is not None and password is not None and draft.login is None:
        scram = draft.given.get("sasl.mechanism", "").upper().startswith("SCRAM")
        module = MODULES["ScramLoginModule" if scram else "PlainLoginModule"]
        draft.settings[JAAS] = Login(module, {"username": name, "password": password}).text()
    for key in own:
        java = librdkafka.JAVA.get(key)
        draft.warn(
            "client-setting-dropped",
            f"{key!r} changes nothing with transport='jvm': it is librdkafka's",
            f"write {java}" if java else "remove it, or read and write with transport='librdkafka'",
        )


def _kerberos(draft: Draft) -> None:
    """The connector's three Kerberos keys are a login; krb5.conf itself is a property of the JVM."""
    principal, keytab = (draft.given.get(_KERBEROS + key) for key in ("principal", "keytab"))
    if JAAS in draft.settings or principal is None or keytab is None:
        return
    if draft.given.get("sasl.mechanism", "GSSAPI").upper() == "GSSAPI":
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab, "principal": principal}
        draft.settings[JAAS] = Login(MODULES["Krb5LoginModule"], options).text()


def _in_order(draft: Draft) -> None:
    """Without idempotence one request in flight keeps the order, on both transports."""
    flight = "max.in.flight.requests.per.connection"
    if draft.client == "producer" and flight not in draft.given and draft.given.get("enable.idempotence") == "false":
        draft.settings[flight] = "1"
