"""The calls that describe a source or sink: their values, and their locations, which messages name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import attrs

from kdsl.client_settings.properties import Value
from kdsl.cluster import Cluster
from kdsl.declare.connector import Latency, Transport
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, Where

if TYPE_CHECKING:
    from kdsl.secrets import Secret

_PACKAGE_FOLDER = f"{Path(__file__).parent}{os.sep}"


def caller_location() -> Where:
    """Find the location in the user's program: the newest frame outside kdsl.datastream; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE_FOLDER):
        frame = frame.f_back
    return Where() if frame is None else Where(file=frame.f_code.co_filename, line=frame.f_lineno)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function in messages and plans: ``module:name``, or the type of an object without a name."""
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        return repr(type(function).__name__)
    return f"{function.__module__}:{name.replace('.<locals>', '')}"


@attrs.frozen
class CallSites:
    """How and where a source or sink was described.

    Attributes:
        fluent: Whether it was described by a builder's methods, rather than by keywords.
        where: The location of ``build()``, or of the call with keywords.
        locations: The location of each setting that has its own, by the keyword's name.
        repeated: The settings that were made more than once although only one value can apply.
    """

    fluent: bool = False
    where: Where = attrs.field(factory=Where)
    locations: Mapping[str, Where] = attrs.field(factory=dict)
    repeated: tuple[str, ...] = ()

    def name(self, setting: str) -> str:
        """A setting as the user wrote it: ``set_topics()`` or ``topics=``; a method stays one (``set_topic()``)."""
        if setting.startswith("set_"):  # of another builder, which has only methods
            return f"{setting}()"
        return f"set_{setting}()" if self.fluent else f"{setting}="

    def with_value(self, setting: str, value: object) -> str:
        """A setting with its value: ``set_topics('a')`` or ``topics='a'``; a method stays one (``set_topic('a')``)."""
        if setting.startswith("set_"):
            return f"{setting}({value!r})"
        return f"set_{setting}({value!r})" if self.fluent else f"{setting}={value!r}"

    def location(self, setting: str) -> Where:
        """Return the location of a setting; where it has none of its own, that of the whole description."""
        return self.locations.get(setting, self.where)

    def problem(self, setting: str, code: str, message: str, fix: str, **rest: Any) -> Problem:
        """Return a problem at the location of a setting."""
        return Problem(code, message, fix, **rest).at(self.location(setting))

    def repetitions(self) -> Iterator[Problem]:
        """Report each setting that was made more than once."""
        for setting in self.repeated:
            message = f"{self.name(setting)} is called twice, and the first call would be lost"
            yield self.problem(setting, "builder-twice", message, "call it once")


@attrs.frozen
class BuilderTableDef(TableDef):
    """The definition that a source or sink makes; its messages name options as the builder does.

    Attributes:
        call_sites: How and where the source or sink was described.
        settings: The builder's setting for each option.
    """

    call_sites: CallSites = attrs.field(factory=CallSites, eq=False, kw_only=True)
    settings: Mapping[str, str] = attrs.field(factory=dict, eq=False, kw_only=True)

    def option_name(self, attribute: str, key: str | None = None) -> str:
        """An option's name in the builder; where the builder has no such setting, as `TableDef.option_name`."""
        if attribute not in self.settings:
            return TableDef.option_name(self, attribute, key)
        return self.call_sites.name(self.settings[attribute])

    def setting(self, attribute: str, value: object) -> str:
        """An option with a value, as a call or keyword of the builder; without such a setting as `TableDef.setting`."""
        if attribute not in self.settings:
            return TableDef.setting(self, attribute, value)
        return self.call_sites.with_value(self.settings[attribute], value)


class BuilderCalls:
    """Records the calls of a fluent builder; base class of the builders of sources and of sinks."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._properties: dict[str, Value] = {}
        self._locations: dict[str, Where] = {}
        self._repeated: list[str] = []

    def _set(self, setting: str, value: Any) -> Self:
        """Store a setting and the line that set it, note a repetition, and return the builder."""
        if setting in self._settings:
            self._repeated.append(setting)
        self._settings[setting] = value
        self._locations[setting] = caller_location()
        return self

    def _call_sites(self) -> CallSites:
        """Return where each setting was made, and the location of the call of ``build()``, in which this is called."""
        repeated = tuple(dict.fromkeys(self._repeated))
        return CallSites(fluent=True, where=caller_location(), locations=dict(self._locations), repeated=repeated)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Set the brokers to connect to first: ``host:port``, several separated by commas."""
        return self._set("bootstrap_servers", bootstrap_servers)

    def set_cluster(self, cluster: Cluster) -> Self:
        """Set the cluster of the topics, with security and secrets, instead of bootstrap servers."""
        return self._set("cluster", cluster)

    def set_property(self, key: str, value: str | int | float | bool | Secret) -> Self:
        """Set a property of the Kafka client, or of the source, under Java's name; the last of several calls counts."""
        self._properties[key] = value
        self._locations[f"properties.{key}"] = caller_location()
        return self

    def set_properties(self, properties: Mapping[str, Value]) -> Self:
        """Set several properties; they are added to those that are already set, and replace those with their names."""
        self._properties.update(properties)
        self._locations.update(dict.fromkeys((f"properties.{key}" for key in properties), caller_location()))
        return self

    def set_latency(self, latency: Latency) -> Self:
        """Set ``micro-batch``, or ``realtime`` for real-time mode, which needs the transport ``jvm``."""
        return self._set("latency", latency)

    def set_transport(self, transport: Transport) -> Self:
        """Set the client that reads or writes: ``librdkafka``, or ``jvm`` for Spark's own connector."""
        return self._set("transport", transport)

    def set_name(self, name: str) -> Self:
        """Set the name of the source or sink in messages."""
        return self._set("name", name)


def unique_problems(problems: Iterable[Problem], where: Where) -> tuple[Problem, ...]:
    """Return each problem once, with a location.

    Args:
        problems: Problems, some of them perhaps without a location.
        where: The location of those without one.
    """
    return tuple(dict.fromkeys(p.at(where) for p in problems))
