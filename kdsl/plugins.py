"""Finds plug-ins: objects that packages register by a name in a group of entry points, as ``kdsl.formats``.

The plug-ins of kdsl are declared in pyproject.toml as those of any other package. They are listed here once more, for a
kdsl that runs from its folder without being installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, distribution, distributions
from typing import Any

import attrs

from kdsl.distribution import NAME
from kdsl.errors import KdslError

OWN: Mapping[str, Mapping[str, str]] = {
    "kdsl.commands": {
        "demo": "kdsl.cli.demo:demo",
        "init": "kdsl.cli.init:init",
        "check": "kdsl.cli.check:check",
        "plan": "kdsl.cli.inspect:plan",
        "schema": "kdsl.cli.inspect:schema",
        "document-schema": "kdsl.cli.document_schema:document_schema",
        "monitor": "kdsl.cli.monitor:app",
        "watch": "kdsl.cli.watch:watch",
        "peek": "kdsl.cli.peek:peek",
        "produce": "kdsl.cli.produce:produce",
        "lag": "kdsl.cli.lag:lag",
        "doctor": "kdsl.cli.doctor:doctor",
        "diff": "kdsl.cli.diff:diff",
        "apply": "kdsl.cli.diff:apply",
        "verify": "kdsl.cli.verify:verify",
        "run": "kdsl.cli.run:run",
        "ingest": "kdsl.cli.ingest:ingest",
        "export": "kdsl.cli.codegen:export",
        "codegen": "kdsl.cli.codegen:app",
        "test": "kdsl.cli.test:run_cases",
        "explain": "kdsl.cli.explain:explain",
        "kafka": "kdsl.cli.kafka:app",
        "dev": "kdsl.cli.dev:dev",
        "dlq": "kdsl.cli.dlq:app",
        "state": "kdsl.cli.state:app",
    },
    "kdsl.formats": {
        "avro": "kdsl_formats.avro:Avro",
        "avro-confluent": "kdsl_formats.avro_confluent:AvroConfluent",
        "canal-json": "kdsl_formats.cdc_json:CanalJson",
        "csv": "kdsl_formats.csv:Csv",
        "debezium-avro-confluent": "kdsl_formats.debezium_avro_confluent:DebeziumAvroConfluent",
        "debezium-json": "kdsl_formats.cdc_json:DebeziumJson",
        "json": "kdsl_formats.json:Json",
        "json-schema-confluent": "kdsl_formats.json_schema_confluent:JsonSchemaConfluent",
        "maxwell-json": "kdsl_formats.cdc_json:MaxwellJson",
        "ogg-json": "kdsl_formats.cdc_json:OggJson",
        "protobuf": "kdsl_formats.protobuf:Protobuf",
        "protobuf-confluent": "kdsl_formats.protobuf:ProtobufConfluent",
        "raw": "kdsl_formats.raw:Raw",
    },
    "kdsl.secrets": {
        "env": "kdsl.secrets.local:from_environment",
        "file": "kdsl.secrets.local:from_file",
    },
    "kdsl.sinks": {
        "blackhole": "kdsl.ingest.ends.plain:Blackhole",
        "delta": "kdsl.ingest.ends.tables:DeltaTables",
        "hologres": "kdsl.vendors.hologres:HologresTables",
        "jdbc": "kdsl.ingest.ends.tables:JdbcTables",
        "kafka": "kdsl.ingest.ends.kafka:KafkaTopics",
        "memory": "kdsl.ingest.ends.plain:Memory",
        "print": "kdsl.ingest.ends.plain:Print",
    },
    "kdsl.sources": {
        "delta": "kdsl.ingest.ends.tables:DeltaChanges",
        "jdbc": "kdsl.ingest.ends.tables:JdbcSnapshot",
        "kafka": "kdsl.ingest.ends.kafka:KafkaFeed",
        "mysql": "kdsl.ingest.ends.tables:MySqlSnapshot",
    },
    "kdsl.table_options": {"dew": "kdsl.vendors.dew:DewOptions"},
}
"""kdsl's own plug-ins, by group and name."""


class PluginError(KdslError):
    """A plug-in cannot be used: it cannot be imported, is not what its group needs, or has the name of another one."""


@attrs.frozen
class PluginGroup:
    """A group of entry points.

    Attributes:
        name: Its name, such as ``kdsl.formats``.
        kind: What its plug-ins are, in messages: ``format``.
    """

    name: str
    kind: str

    def find_all(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        """The plug-ins by their names, not loaded: kdsl's own first, then those of other packages, sorted.

        A name that several packages register has several; it cannot be loaded, and the others can.
        """
        return _find_plugins(self)

    def load(self, name: str) -> Any:
        """Import a plug-in.

        Raises:
            KeyError: There is no plug-in with this name.
            PluginError: It cannot be imported, or several packages register it.
            KdslError: Its import raises it.
        """
        point, *others = self.find_all()[name]
        if others:
            named = " and ".join(map(_locate, (point, *others)))
            raise PluginError(
                f"{len(others) + 1} packages register the {self.kind} {name!r}: {named}; uninstall all but one of them"
            )
        try:
            return point.load()
        except KdslError:  # which says what to do, as one about a plug-in that this one needs
            raise
        except Exception as e:  # another package's code, whose message may contain credentials
            reason = str(e)
            if not isinstance(e, (ImportError, AttributeError, SyntaxError)):
                reason = f"{type(e).__name__}, which python -c 'import {point.module}' explains"
            raise PluginError(
                f"{self.describe(name)} cannot be imported: {reason}; install what it needs, or correct or uninstall "
                "its package"
            ) from e

    def load_class(self, name: str, parent: type, parent_name: str) -> Any:
        """Import a plug-in that is a subclass of the interface of its group.

        Args:
            name: The name of the plug-in.
            parent: The interface.
            parent_name: The name under which users import the interface.

        Raises:
            KeyError: There is no plug-in with this name.
            PluginError: It is not such a class; or as for `load`.
        """
        loaded = self.load(name)
        if not (isinstance(loaded, type) and issubclass(loaded, parent)):
            raise PluginError(
                f"{self.describe(name)} is not a subclass of {parent_name}; correct the entry point of its package"
            )
        return loaded

    def describe(self, name: str) -> str:
        """Describe a plug-in for messages: what it is, where it is, and its package.

        Raises:
            KeyError: There is no plug-in with this name.
        """
        return f"the {self.kind} {name!r} ({_locate(self.find_all()[name][0])})"


def import_object(location: str) -> Any:
    """Import an object by its module and its name, as an entry point does: ``package.module:name``.

    With it the declaration of a plug-in names what runs it without importing that.

    Raises:
        ImportError: There is no such module.
        AttributeError: The module has no such object.
    """
    return EntryPoint("", location, "").load()


def forget_plugins() -> None:
    """Look for plug-ins again when they are needed next, because packages were installed or removed meanwhile."""
    _read_entry_points.cache_clear()
    _find_plugins.cache_clear()


@cache
def _read_entry_points() -> EntryPoints:
    """Read the entry points of the packages that have some for kdsl: one walk over all packages serves all groups.

    It takes a third of the time of `importlib.metadata.entry_points`, which parses those of all packages.
    """
    texts = ((package, package.read_text("entry_points.txt") or "") for package in distributions())
    names = {package.name for package, text in texts if "[kdsl." in text}
    return EntryPoints(point for name in sorted(names) for point in distribution(name).entry_points)


@cache
def _find_plugins(group: PluginGroup) -> Mapping[str, tuple[EntryPoint, ...]]:
    """As `PluginGroup.find_all`; the metadata of kdsl itself may be that of another version, and is not used."""
    own = OWN.get(group.name, {})
    points: dict[str, tuple[EntryPoint, ...]]
    points = {name: (EntryPoint(name, value, group.name),) for name, value in own.items()}
    for point in sorted(_read_entry_points().select(group=group.name), key=lambda point: point.name):
        others = points.get(point.name, ())
        if all(other.value != point.value for other in others) and _find_package(point) != NAME:
            points[point.name] = (*others, point)
    return points


def _find_package(point: EntryPoint) -> str:
    """The name of the package that registers a plug-in."""
    return NAME if point.dist is None else point.dist.name


def _locate(point: EntryPoint) -> str:
    """Where a plug-in is, and its package, for messages."""
    return f"{point.value} of the package {_find_package(point)!r}"
