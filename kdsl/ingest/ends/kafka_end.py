"""What sources and sinks of ingestions in Kafka have in common: a cluster, and formats of keys and values."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self

import attrs

from kdsl.cluster import SERVERS, Cluster
from kdsl.errors import listing, nearest
from kdsl.formats import Format, UnknownFormatError, format_class
from kdsl.ingest.ends.end import End, WrongOption
from kdsl.options import option
from kdsl.types import model as t

Side = Literal["key", "value"]
PROPERTIES = "properties."
DEBEZIUM = "debezium-json"
"""The format of values by default."""
_CLUSTER = "The cluster; in YAML properties.bootstrap.servers, and properties.* for settings of the Kafka client."
_FORMAT_KEY = re.compile(r"(?:key\.)?[a-z]+(?:-[a-z]+)+\.|(?:key\.)?(?:json|csv)\.")


class KafkaEnd(End):
    """What the source and the sink share: a cluster, and the formats of key and value.

    Attributes:
        formats: kdsl's own formats that each side of a message may have.
        of_format: The options that are written with the name of the value format before them.
    """

    formats: ClassVar[Mapping[Side, tuple[str, ...]]]
    of_format: ClassVar[tuple[str, ...]] = ()

    cluster: Cluster = option(f"{PROPERTIES}{SERVERS}", _CLUSTER, kw_only=False)
    key: Format | None = option("key.format", "The format of message keys; json, in a sink also csv.", default=None)
    value: Format = option(
        "value.format",
        "The format of message values: debezium-json, canal-json or json.",
        default=format_class(DEBEZIUM)(),
    )

    @classmethod
    @abstractmethod
    def fits(cls, name: str, side: Side) -> bool:
        """Whether messages may have a format on a side."""

    @classmethod
    def read(cls, strings: Mapping[str, str]) -> tuple[Self, list[WrongOption]]:
        """Create the end from the strings of a document; see `End.read`.

        Keys without the prefix of the value format, keys of formats that are not used, and formats that the end does
        not have are reported and left out. Without ``properties.bootstrap.servers``, the other properties are left out,
        too.
        """
        rest = dict(strings)
        wrong: list[WrongOption] = []
        properties = {key: rest.pop(key) for key in strings if key.startswith(PROPERTIES)}
        others: dict[str, Any] = {}
        servers = properties.pop(f"{PROPERTIES}{SERVERS}", None)
        if servers is not None:
            settings = {key.removeprefix(PROPERTIES): text for key, text in properties.items()}
            others["cluster"] = Cluster(servers, properties=settings)
        value = rest.pop("value.format", DEBEZIUM)
        for key in cls.of_format:
            if key in rest:
                wrong.append(_unknown(cls, key, f"write it as {f'{value}.{key}'!r}"))
                del rest[key]
            if f"{value}.{key}" in rest:
                rest[key] = rest.pop(f"{value}.{key}")
        names: dict[Side, str | None] = {"key": rest.pop("key.format", None), "value": value}
        for side, name in names.items():
            if name is None:
                continue
            try:
                fits = cls.fits(name, side)
            except UnknownFormatError as e:
                wrong.append(WrongOption("format-unknown", f"{side}.format", str(e), "or choose another format"))
                continue
            if not fits:
                wrong.append(_wrong_format(cls, side, name))
                continue
            prefix = f"{'key.' if side == 'key' else ''}{name}."
            own = {key.removeprefix(prefix): rest.pop(key) for key in list(rest) if key.startswith(prefix)}
            others[side] = format_class(name).from_strings(own)
        known = {a.metadata["key"] for a in cls.declarations()}
        for key in [key for key in rest if key not in known and _FORMAT_KEY.match(key)]:
            del rest[key]
            fix = f"remove it, or set value.format to {key.rpartition('key.')[2].partition('.')[0]}"
            wrong.append(_unknown(cls, key, fix, "it belongs to a format that is not used"))
        return cls.from_strings(rest, **others), wrong

    def write(self) -> dict[str, str]:
        """The options as strings, with secrets of the cluster hidden; see `End.write`.

        The value format ``debezium-json``, the default, is left out.
        """
        strings = {f"{PROPERTIES}{SERVERS}": self.cluster.bootstrap_servers}
        strings |= {f"{PROPERTIES}{key}": text for key, text in self.cluster.properties.redact().items()}
        own = self.to_strings()
        for key in (f"{PROPERTIES}{SERVERS}", "key.format", "value.format"):
            own.pop(key, None)
        of_format = {f"{self.value.identifier}.{key}": own.pop(key) for key in self.of_format if key in own}
        sides: dict[Side, Format | None] = {"key": self.key, "value": self.value}
        for side, chosen in sides.items():
            if chosen is not None and (side == "key" or chosen.identifier != DEBEZIUM):
                own[f"{side}.format"] = chosen.identifier
            prefix = "key." if side == "key" else ""
            if chosen is not None:
                own |= {f"{prefix}{chosen.identifier}.{key}": text for key, text in chosen.to_strings().items()}
        return {**strings, **own, **of_format}

    def split(self, prefix: str = "") -> tuple[Self, dict[str, str]]:
        """The end without the literal secrets of its cluster, and these secrets by key.

        The keys begin with ``prefix`` and ``properties.``.
        """
        if not isinstance(self.cluster, Cluster):
            return self, {}  # a problem of the option itself
        cluster, literals = self.cluster.split_literals()
        without = attrs.evolve(self, cluster=cluster) if literals else self  # type: ignore[misc]
        return without, {f"{prefix}{PROPERTIES}{key}": value for key, value in literals.items()}

    def check(self) -> Iterable[WrongOption]:
        """Report formats that the end does not have, and the problems of the formats and of the cluster's settings."""
        sides: dict[Side, Format | None] = {"key": self.key, "value": self.value}
        for side, chosen in sides.items():
            if not isinstance(chosen, Format):
                continue  # a value of the wrong type is a problem of the option itself
            if not self.fits(chosen.identifier, side):
                yield _wrong_format(type(self), side, chosen.identifier)
                continue
            for problem in chosen.problems(partial(_format_option, chosen)):
                declared = attrs.fields_dict(type(chosen)).get(problem.option or "")
                key = problem.option if declared is None else declared.metadata["key"]
                yield WrongOption(problem.code, f"{chosen.identifier}.{key}", problem.message, problem.fix)
            for problem in chosen.valid().check(t.Row(()), "read" if self.kind == "source" else "write"):
                yield WrongOption(problem.code, f"{side}.format", problem.message, problem.fix, problem.severity)
        cluster: object = self.cluster  # a value of the wrong type is a problem of the option itself
        for problem in cluster.problems() if isinstance(cluster, Cluster) else ():
            key = f"{PROPERTIES}{problem.property or SERVERS}"
            yield WrongOption(problem.code, key, problem.message, problem.fix, problem.severity)


def _format_option(chosen: Format, name: str, key: str) -> str:
    """The key of an option of a format."""
    del name
    return f"{chosen.identifier}.{key}"


def _unknown(end: type[End], key: str, fix: str, why: str = "") -> WrongOption:
    """The problem of an option that the end does not have, with the nearest one that it has."""
    message = f"{end.title} has no option {key!r}{nearest(key, (a.metadata['key'] for a in end.declarations()))}"
    return WrongOption("option-unknown", key, f"{message}: {why}" if why else message, fix)


def _wrong_format(end: type[KafkaEnd], side: Side, name: str) -> WrongOption:
    """The problem of a format that the end does not have for its keys or values, with those that it has."""
    names = end.formats[side]
    message = f"the {side} format of {end.title} cannot be {name!r}{nearest(name, names)}"
    fix = f"use {listing(names)}"
    fix += "; tables of other formats are declared one by one with KafkaTable" if side == "value" else ""
    return WrongOption("format-unknown", f"{side}.format", message, fix)
