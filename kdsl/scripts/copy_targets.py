"""Where copies go: the sink of the catalog in which a statement names its table or database."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.cluster import SERVERS
from kdsl.ddl.statements import CreateDatabase, CreateTable, Option
from kdsl.errors import Problem, Where
from kdsl.formats import TableId
from kdsl.ingest import KafkaTopics, Sink
from kdsl.ingest.ids import parse_id
from kdsl.scripts.catalogs import ScriptCatalog, ScriptCatalogs, SinkCatalog, find_sink_class, read_sink

_PROPERTIES = "properties."


@attrs.frozen
class CopyTarget:
    """Where a copy goes.

    Attributes:
        name: The name of the table or database, with its catalog.
        table: The name of the table in its database; empty for a database.
        sink: The sink.
        database: The names before that of a table in its id; empty where tables have a name only.
        locations: The locations of the options, by the keys of the sink.
    """

    name: str
    table: str
    sink: Sink
    database: tuple[str, ...]
    locations: Mapping[str, Where]

    def table_id(self) -> TableId:
        """The id of the table in the sink."""
        names = parse_id(self.table) if self.sink.database_option else (self.table,)
        return (*self.database, *names)


def find_target(
    statement: CreateTable | CreateDatabase, catalogs: ScriptCatalogs, problems: list[Problem]
) -> CopyTarget | None:
    """Find where a copy goes.

    Args:
        statement: The statement.
        catalogs: The catalogs of the script.
        problems: The list to which problems are added; those of the sink's options are found when the copy is built.

    Returns:
        The target; None if the catalog is unknown, the script's own, or has problems that are recorded elsewhere.
    """
    if isinstance(statement, CreateTable):
        catalog, database, table = catalogs.complete(statement.name)
    else:
        (catalog, database), table = catalogs.complete_database(statement.name), ""
    of_name = catalogs.sinks.get(catalog) or catalogs.catalogs.get(catalog)
    if of_name is not None:
        return _make_target(statement, of_name, catalog, database, table, problems)
    if catalogs.exists(catalog, statement.name.where):
        message = f"{str(statement.name)!r} is in no catalog, and a copy needs one, which says where it is stored"
        fix = "write CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '…'), or of the type 'jdbc' or 'kafka', "
        fix += "and name the table as lake.database.table"
        problems.append(Problem("copy-sink", message, fix, statement.name.where))
    return None


def _make_target(
    statement: CreateTable | CreateDatabase,
    catalog: SinkCatalog | ScriptCatalog,
    catalog_name: str,
    database: str,
    table: str,
    problems: list[Problem],
) -> CopyTarget | None:
    """Make the target in a catalog; None if the catalog has problems that are recorded elsewhere.

    The options of the statement take precedence over those of the catalog. Recorded are options that the sink does not
    keep (`read_sink`), another ``connector`` and another database of Kafka.
    """
    options, where = statement.options, statement.name.where
    kind = catalog.type if isinstance(catalog, SinkCatalog) else "kafka"
    connector = next((o for o in options if o.key == "connector"), None)
    if connector is not None and connector.value != kind:
        message = f"the catalog is one of the type {kind!r}, and 'connector' is {connector.value!r}"
        problems.append(Problem("copy-connector", message, "remove the option", connector.where))
    own = {o.key: o for o in (*catalog.statement.options, *options)}
    if isinstance(catalog, ScriptCatalog):
        if catalog.cluster is None:
            return None
        if database != catalog.database:
            message = f"the catalog {catalog.statement.name.last!r} has no database {database!r}"
            problems.append(Problem("database-unknown", message, f"use {catalog.database!r}", where))
        format_ = catalog.options.valid().format or "json"
        written = {o.key for o in options}
        own = {key: o for key, o in own.items() if key.startswith(_PROPERTIES) or key in written}
        own.setdefault("value.format", Option("value.format", format_, where))
        own.setdefault(f"properties.{SERVERS}", Option(f"properties.{SERVERS}", "unused", where))
    if (key := find_sink_class(kind).database_option) is not None:
        own[key] = Option(key, database, where)
    sink, wrong, locations = read_sink(kind, list(own.values()))
    problems += (p.at(where) for p in wrong)
    if isinstance(sink, KafkaTopics) and isinstance(catalog, ScriptCatalog) and not list(sink.problems()):
        assert catalog.cluster is not None
        more = {o.key.removeprefix(_PROPERTIES): o.value for o in options if o.key.startswith(_PROPERTIES)}
        sink = attrs.evolve(sink, cluster=catalog.cluster.with_properties(more))  # type: ignore[misc]
    ids = () if kind == KafkaTopics.type or sink.database_option is not None else (database,)
    name = f"{catalog_name}.{database}.{table}" if table else f"{catalog_name}.{database}"
    return CopyTarget(name, table, sink, ids, locations)
