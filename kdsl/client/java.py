"""Client properties as Java's clients take them, for the transport ``jvm``.

The names stay; what is kdsl's own is taken out, values are brought to Java's spelling, shaded login modules become
Kafka's, and librdkafka's own names become Java's where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import attrs

from kdsl.client import librdkafka
from kdsl.client.connector import ConnectorSettings, connector_settings
from kdsl.client.draft import Draft, Resolve, read, refusal
from kdsl.client.hiding import redact
from kdsl.client.java_keys import open_key
from kdsl.client.java_login import java_login
from kdsl.client.key_files import scheme, unreachable
from kdsl.client.machine import Machine
from kdsl.client.model import Client
from kdsl.client.sasl import MECHANISMS, PROVIDER, mechanism_is_missing
from kdsl.client.settings import TABLE
from kdsl.errors import Problem

_MECHANISM = "sasl.mechanism"
_ENDPOINT = "ssl.endpoint.identification.algorithm"


@attrs.frozen
class JavaSettings:
    """What client properties mean to Java's clients.

    Attributes:
        settings: The properties to hand on, by Java's names.
        connector: What the connector takes for itself.
        problems: Everything that is wrong (errors) or left out (warnings).
        system: The system properties that the client's JVM must have, such as where krb5.conf is.
    """

    settings: Mapping[str, str] = attrs.field(repr=lambda m: repr(redact(m)))
    connector: ConnectorSettings
    problems: tuple[Problem, ...] = ()
    system: Mapping[str, str] = attrs.field(factory=dict)


def java_settings(
    properties: Mapping[str, str], client: Client, resolve: Resolve | None = None, machine: Machine | None = None
) -> JavaSettings:
    """What client properties mean to a Java client.

    Args:
        properties: Java's names (or librdkafka's own) and their texts, without the prefix ``properties.``.
        client: The kind of client.
        resolve: Replaces references to secrets; without it they stay as they stand.
        machine: Fetches key files that are given by an address; without it none is looked at.
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
    for name in ("ssl.truststore.location", "ssl.keystore.location"):
        location = draft.settings.get(name, "")
        if told := unreachable(location):
            draft.tell(
                "tls-store", f"{name!r} is {location!r}: {told}", "copy the file to every machine, or install one"
            )
        elif machine is not None and scheme(location):
            draft.settings[name] = draft.tried(partial(machine.path, location)) or location
    open_key(draft, machine)
    own = dict(draft.own)
    if draft.settings.get(_MECHANISM, "").upper() in (*MECHANISMS, "GSSAPI"):
        draft.settings[_MECHANISM] = draft.settings[_MECHANISM].upper()
    missing = draft.given.get("security.protocol", "").startswith("SASL_") and mechanism_is_missing(draft)
    system = {} if missing else java_login(draft, own, machine)
    _own_names(draft, own)
    _in_order(draft)
    return JavaSettings(
        MappingProxyType(draft.settings), connector_settings(properties, resolve), tuple(draft.problems), system
    )


def _own_names(draft: Draft, own: Mapping[str, str]) -> None:
    """What librdkafka's own names become."""
    for key in own:
        java = librdkafka.JAVA.get(key)
        draft.warn(
            "client-setting-dropped",
            f"{key!r} changes nothing with transport='jvm': it is librdkafka's",
            f"write {java}" if java else "remove it, or read and write with transport='librdkafka'",
        )


def _in_order(draft: Draft) -> None:
    """Without idempotence one request in flight keeps the order, on both transports."""
    flight = "max.in.flight.requests.per.connection"
    if draft.client == "producer" and flight not in draft.given and draft.given.get("enable.idempotence") == "false":
        draft.settings[flight] = "1"
