"""What a row of the table of client settings is, and how rows are written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, get_args

import attrs

from kdsl.secrets.hiding import SECRET_SETTINGS

Client = Literal["consumer", "producer", "admin"]
CLIENT_KINDS: tuple[Client, ...] = get_args(Client)
"""The kinds of client; a row names them by their first letters, as ``cpa``."""

Kind = Literal["text", "int", "bool", "list", "class"]

Act = Literal["same", "renamed", "derived", "dropped", "refused", "owned", "connector"]
"""What the transport ``librdkafka`` does with a setting.

- ``same``, ``renamed``: passed on, if needed in another unit or range.
- ``derived``: read together with others (SSL stores, SASL, compression levels, the partitioner).
- ``dropped``: left out with a warning; there is no counterpart, and the clients work without it.
- ``refused``: there is no counterpart, and clients would behave differently without it; use ``transport="jvm"``.
- ``owned``: kdsl sets it itself; refused on both transports.
- ``connector``: read by kdsl, not by the client.
"""

MAX_INT = 2_147_483_647
OVER_JVM = "use Spark's own Kafka connector (transport='jvm')"
"""What to do if librdkafka does not support a setting."""

Java = tuple[int | None, int | None]


def names(text: str) -> frozenset[str]:
    """Split a string of names at blanks and line ends."""
    return frozenset(text.split())


@attrs.frozen
class LibrdkafkaProperty:
    """A property of librdkafka that a setting becomes.

    Attributes:
        name: librdkafka's name.
        low: The smallest value that librdkafka takes, for integers.
        high: The largest.
        convert: From Java's number to librdkafka's.
        clients: The clients that get it; empty means all that have the setting.
    """

    name: str
    low: int | None = None
    high: int | None = None
    convert: Callable[[int], int] | None = None
    clients: str = ""


@attrs.frozen
class Setting:
    """One setting of Java's clients, or one that the connector adds.

    Attributes:
        name: Java's name.
        clients: The clients that have it: some of the letters ``cpa``.
        kind: What its value is; of a setting that is dropped the value is not read.
        act: What the transport ``librdkafka`` does with it.
        targets: librdkafka's properties.
        values: The values that Java takes, in Java's spelling; matched in any letter case.
        low: The smallest value that Java takes.
        high: The largest.
        default: Java's default for each client, where it must be set because librdkafka's differs.
        note: What differs, or why it is dropped or refused.
        instead: What to write instead, for a setting that is refused.
        secret: Whether its value must never be shown.
    """

    name: str
    clients: str
    kind: Kind = "text"
    act: Act = "same"
    targets: tuple[LibrdkafkaProperty, ...] = ()
    values: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    default: Mapping[str, str] = attrs.field(factory=dict)
    note: str = ""
    instead: str = ""
    secret: bool = False

    def has(self, client: Client) -> bool:
        """Whether this kind of client has the setting."""
        return client[0] in self.clients


def _default(value: str | Mapping[str, str], clients: str) -> Mapping[str, str]:
    """Return a default by letter of the client, from a string for all ``clients`` or a mapping by groups of letters.

    Empty strings are left out.
    """
    by_clients = {clients: value} if isinstance(value, str) else value
    return MappingProxyType({letter: text for letters, text in by_clients.items() for letter in letters if text})


def words(name: str, clients: str, *values: str, default: str = "", note: str = "") -> Setting:
    """Create a setting that keeps its name and accepts a string, or one of the values."""
    return Setting(
        name, clients, "text", "same", (LibrdkafkaProperty(name),), values, None, None, _default(default, clients), note
    )


def switch(name: str, clients: str, default: str | Mapping[str, str], note: str) -> Setting:
    """Create a setting that keeps its name and is true or false."""
    return Setting(
        name, clients, "bool", "same", (LibrdkafkaProperty(name),), default=_default(default, clients), note=note
    )


def number(
    name: str,
    clients: str,
    *targets: LibrdkafkaProperty,
    java: Java = (0, None),
    default: str | Mapping[str, str] = "",
    note: str = "",
) -> Setting:
    """Create a setting that accepts an integer in Java's range; it is limited to the range of each target."""
    act: Act = "same" if name in {t.name for t in targets} and len(targets) == 1 else "renamed"
    return Setting(name, clients, "int", act, targets, (), *java, _default(default, clients), note)


def rows(
    act: Act,
    clients: str,
    named: str,
    note: str,
    kind: Kind = "text",
    *,
    values: str = "",
    java: Java = (None, None),
    instead: str = "",
) -> list[Setting]:
    """Create several settings with the same row; names and values are separated by blanks.

    Those in `SECRET_SETTINGS` are secret.
    """
    return [
        Setting(n, clients, kind, act, (), tuple(values.split()), *java, {}, note, instead, n in SECRET_SETTINGS)
        for n in named.split()
    ]
