"""The catalogs of a script: what ``CREATE CATALOG`` registers, what names of several parts mean, and ``SHOW``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kdsl.catalog.declared import leaves_columns_out, with_inferred_columns
from kdsl.catalog.kafka import KafkaCatalog
from kdsl.catalog.options import CatalogOptions, cloud_api_problem
from kdsl.catalog.stored import Inference
from kdsl.client_settings.properties import Properties
from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.codegen.secret import Placeholders
from kdsl.codegen.with_options import with_clause_options
from kdsl.ddl.statements import (
    Column,
    CreateCatalog,
    CreateTable,
    DropCatalog,
    MetadataColumn,
    Name,
    Option,
    PhysicalColumn,
    PrimaryKey,
    Use,
)
from kdsl.ddl.tables import OF_COLUMNS, DeclaredTable, declare_table
from kdsl.declare.connector import UpsertOptions
from kdsl.declare.definition import Inferred, TableDef
from kdsl.errors import KdslError, Problem, ResolveError, TopicMissingError, Where, listing, nearest
from kdsl.ingest.ends import Sink, end_class, end_types
from kdsl.resolve import problems
from kdsl.secrets import Secret
from kdsl.table import Table

DEFAULT_CATALOG, DEFAULT_DATABASE = "default_catalog", "default_database"
OWN_CATALOGS = (DEFAULT_CATALOG, "vvp")
"""The catalogs that stand for the tables of the script itself; Ververica's scripts write ``vvp.`default`.t``."""
_KAFKA = "kafka"


@attrs.frozen
class ScriptCatalog:
    """A catalog that a script has created.

    Attributes:
        statement: The statement.
        options: Its options.
        kafka: The catalog; None where its brokers are not known, and where the script is only checked.
        cluster: Its cluster; None where its brokers are not known.
    """

    statement: CreateCatalog
    options: CatalogOptions
    kafka: KafkaCatalog | None
    cluster: Cluster | None = None

    @property
    def database(self) -> str:
        """The name of its database."""
        return self.options.valid().default_database


@attrs.frozen
class SinkCatalog:
    """A catalog whose tables are those of a sink of ingestions: a script only fills them, with copies of other tables.

    Attributes:
        statement: The statement.
        type: The type of the sink.
    """

    statement: CreateCatalog
    type: str


class ScriptCatalogs:
    """The catalogs of a script, and what is current.

    Args:
        cluster: The cluster of the run, which takes precedence over that of each catalog; None for theirs.
        inference: What was inferred before, and is stored; None where the cluster is not asked.

    Attributes:
        problems: The problems of the statements.
        unchecked: The tables whose columns are not known, because the cluster is not asked.
    """

    def __init__(self, cluster: Cluster | None, inference: Inference | None) -> None:
        self.cluster, self.inference = cluster, inference
        self.catalogs: dict[str, ScriptCatalog] = {}
        self.sinks: dict[str, SinkCatalog] = {}
        self.current: tuple[str, str] = (DEFAULT_CATALOG, DEFAULT_DATABASE)
        self.problems: list[Problem] = []
        self.unchecked: list[Name] = []
        self._tables: dict[str, DeclaredTable | None] = {}

    # statements

    def create(self, statement: CreateCatalog) -> None:
        """Register the catalog of ``CREATE CATALOG``; its mistakes are recorded in ``problems``.

        If the name exists, nothing is registered, which is a problem without ``IF NOT EXISTS``. A catalog with other
        mistakes is registered all the same.
        """
        name, where = statement.name.last, statement.name.where
        if name in self.catalogs or name in self.sinks or name in OWN_CATALOGS:
            if not statement.if_not_exists:
                message = f"the catalog {name!r} exists already"
                self._add_problem(
                    "catalog-twice", message, "give one of them another name, or drop that one before", where
                )
            return
        texts = {o.key: o.value for o in statement.options}
        locations = {o.key: o.where for o in statement.options}
        kind = texts.get("type")
        if kind is not None and kind != _KAFKA and kind in end_types("sink"):
            self.sinks[name] = SinkCatalog(statement, kind)
            self._check_sink(self.sinks[name])
            return
        if kind != _KAFKA:
            types = (_KAFKA, *(one for one in end_types("sink") if one != _KAFKA))
            reason = "does not say its type" if kind is None else f"has the type {kind!r}, which kdsl does not have"
            hint = "" if kind is None else nearest(kind, types)
            message = f"the catalog {name!r} {reason}{hint}"
            fix = f"set 'type' = 'kafka', or for copies of tables one of {listing(types[1:])}; other systems are read "
            self._add_problem("catalog-type", message, f"{fix}with Spark", locations.get("type", where))
        options = CatalogOptions.from_strings(
            {k: v for k, v in texts.items() if k != "type" and not cloud_api_problem(k)}
        )
        self._add_option_problems(options, texts, locations, where)
        cluster = None if kind != _KAFKA else self._find_cluster(name, options, where)
        kafka = None
        if cluster is not None and self.inference is not None and not [*options.problems(), *options.check()]:
            kafka = KafkaCatalog.of_options(name, cluster, options)
        self.catalogs[name] = ScriptCatalog(statement, options, kafka, cluster)

    def _check_sink(self, catalog: SinkCatalog) -> None:
        """Record the options of a sink's catalog that are unknown or have wrong values.

        Missing options are not recorded, because copies may set them.
        """
        sink, wrong, locations = read_sink(catalog.type, catalog.statement.options)
        keys = {a.name: a.metadata["key"] for a in sink.declarations()}
        where = catalog.statement.name.where
        for problem in sink.problems(lambda _name, key: repr(key)):
            if problem.code != "option-missing":
                key = keys.get(problem.option or "", problem.option or "")
                self.problems.append(problem.at(locations.get(key, where)))
        self.problems += wrong

    def _add_option_problems(
        self, options: CatalogOptions, texts: Mapping[str, str], locations: Mapping[str, Where], where: Where
    ) -> None:
        """Record what is wrong with a catalog's options, at the location of each option or else of the statement."""
        for key in texts:
            problem = cloud_api_problem(key)
            if problem is not None:
                self.problems.append(problem.at(locations[key]))
        keys = {a.name: a.metadata["key"] for a in attrs.fields(CatalogOptions)}
        for problem in (*options.problems(lambda _name, key: repr(key)), *options.check()):
            key = keys.get(problem.option or "", problem.option or "")
            self.problems.append(problem.at(locations.get(key, where)))

    def _find_cluster(self, name: str, options: CatalogOptions, where: Where) -> Cluster | None:
        """The cluster of a catalog; None, with a problem, if the brokers are missing or the options cannot be used.

        With a cluster of the run, it is that one with the properties and registry of the catalog, whose brokers are
        ignored.
        """
        valid = options.valid()
        own = {key: value for key, value in valid.properties.items() if key != SERVERS}
        servers = Properties(valid.properties).reveal().get(SERVERS)
        try:
            registry = None if valid.registry is None else Registry(_reveal(valid.registry), valid.registry_properties)
            if self.cluster is not None:
                cluster: Cluster | None
                known = self.cluster.with_properties(own)
                cluster = known if registry is None else attrs.evolve(known, registry=registry)
            else:
                cluster = None if servers is None else Cluster(servers, properties=own, registry=registry)
        except KdslError as e:
            self.problems += problems_of(e, f"the catalog {name!r} cannot be used", where)
            return None
        if cluster is None:
            message = f"the catalog {name!r} does not name its brokers"
            fix = "set 'properties.bootstrap.servers', or run it with --bootstrap"
            self._add_problem("cluster-missing", message, fix, where)
        return cluster

    def drop(self, statement: DropCatalog) -> None:
        """Forget a catalog and its tables; the current one (it stays) or a missing one is recorded as a problem.

        With ``IF EXISTS`` a missing one is not a problem.
        """
        name, where = statement.name.last, statement.name.where
        if name == self.current[0]:
            fix = f"write USE CATALOG {DEFAULT_CATALOG} before"
            self._add_problem("catalog-in-use", f"the catalog {name!r} is in use and cannot be dropped", fix, where)
            return
        dropped = self.sinks.pop(name, None) or self.catalogs.pop(name, None)
        if dropped is None and not statement.if_exists:
            hint = nearest(name, self.names())
            message = f"there is no catalog {name!r} to drop{hint}"
            self._add_problem("catalog-unknown", message, "write DROP CATALOG IF EXISTS", where)
        self._tables = {key: table for key, table in self._tables.items() if not key.startswith(f"{name}.")}

    def use(self, statement: Use) -> None:
        """Make a catalog (with its database) or a database current; if there is none, a problem is recorded."""
        if statement.kind == "CATALOG":
            name = statement.name.last
            if self.exists(name, statement.name.where):
                self.current = (name, self.database_of(name))
            return
        catalog, database = self.complete_database(statement.name)
        if self.has_database(catalog, database, statement.name.where):
            self.current = (catalog, database)

    def complete_database(self, name: Name | None) -> tuple[str, str]:
        """The catalog and database that a name means: a single part is a database; None means what is current.

        Of several parts, the first is the catalog and the last the database.
        """
        if name is None:
            return self.current
        if len(name.parts) == 1:
            return self.current[0], name.last
        return name.parts[0], name.last

    def database_of(self, catalog: str) -> str:
        """The name of a Kafka catalog's only database; ``default_database`` for any other or unknown catalog."""
        known = self.catalogs.get(catalog)
        return DEFAULT_DATABASE if known is None else known.database

    def names(self) -> list[str]:
        """The names of all catalogs: ``default_catalog``, and those of ``CREATE CATALOG``."""
        return [DEFAULT_CATALOG, *self.catalogs, *self.sinks]

    def exists(self, catalog: str, where: Where) -> bool:
        """Whether there is a catalog; a missing one is recorded as a problem at ``where``."""
        if catalog in self.catalogs or catalog in self.sinks or catalog in OWN_CATALOGS:
            return True
        names = self.names()
        message = f"there is no catalog {catalog!r}{nearest(catalog, names)}"
        self._add_problem(
            "catalog-unknown", message, f"use one of {listing(names)}, or write CREATE CATALOG before", where
        )
        return False

    def has_database(self, catalog: str, database: str, where: Where) -> bool:
        """Whether there is a catalog with a database; otherwise a problem is recorded.

        The catalogs of the script itself and of sinks have any database.
        """
        if not self.exists(catalog, where):
            return False
        if catalog in OWN_CATALOGS or catalog in self.sinks or database == self.database_of(catalog):
            return True
        known = self.database_of(catalog)
        message = f"the catalog {catalog!r} has no database {database!r}{nearest(database, [known])}"
        self._add_problem(
            "database-unknown", message, f"use {known!r}; 'default-database' gives it another name", where
        )
        return False

    def _add_problem(self, code: str, message: str, fix: str, where: Where) -> None:
        """Record a problem at a location."""
        self.problems.append(Problem(code, message, fix, where))

    # tables

    def is_own(self, catalog: str) -> bool:
        """Whether a catalog stands for the tables of the script."""
        return catalog in OWN_CATALOGS

    def path(self, name: Name) -> tuple[str, str, str] | None:
        """The catalog, database and table that a name means; None unless ``CREATE CATALOG`` made the catalog.

        None also for the catalog of a sink, and for a database that the catalog does not have. A name of one or two
        parts is completed with the current catalog and database. Whether the table exists is not checked.
        """
        catalog, database, table = self.complete(name)
        known = self.catalogs.get(catalog)
        return None if known is None or database != known.database else (catalog, database, table)

    def complete(self, name: Name) -> tuple[str, str, str]:
        """The name of a table with its catalog and its database, by default the current ones."""
        parts = name.parts
        full = parts if len(parts) >= 3 else (*self.current[: 3 - len(parts)], *parts)
        return full[0], full[1], full[-1]

    def is_sink_table(self, name: Name) -> bool:
        """Whether a name of three parts means a table of a sink's catalog; False for shorter names.

        Such a table is recorded as a problem: only copies fill it (`kdsl.scripts.copies`).
        """
        if len(name.parts) < 3 or name.parts[0] not in self.sinks:
            return False
        message = f"the tables of the catalog {name.parts[0]!r} are only filled by copies of other tables"
        fix = "write CREATE TABLE … AS TABLE to fill them, and read them with Spark in Python"
        self._add_problem("catalog-sink", message, fix, name.where)
        return True

    def table_names(self, catalog: str, where: Where) -> list[str] | None:
        """The tables of a Kafka catalog, for which the cluster is asked.

        None if the cluster is not asked; and, with a problem, if that fails or the catalog is one of a sink.

        Raises:
            KeyError: ``CREATE CATALOG`` has not made such a catalog.
        """
        if catalog in self.sinks:
            message = f"the catalog {catalog!r} does not list its tables"
            fix = "remove the statement, and list them with Spark in Python"
            self._add_problem("catalog-sink", message, fix, where)
            return None
        known = self.catalogs[catalog].kafka
        if known is None:
            return None
        try:
            return known.tables()
        except KdslError as e:
            self.problems += problems_of(e, f"the tables of the catalog {catalog!r} are not known", where)
            return None

    def find(self, name: Name) -> DeclaredTable | None:
        """The table that a name means in a Kafka catalog, with inferred columns; the result is cached by the full name.

        What is inferred from the cluster or the registry is added to ``inference``.

        Returns:
            None if the name means a table of the script, the table does not exist (a problem only for names of three
            parts), or its columns are unknown: then the name is in ``unchecked``, with a problem if inference failed.
        """
        path = self.path(name)
        if path is None:
            return None
        key = ".".join(path)
        if key not in self._tables:
            self._tables[key] = self._infer(path, name)
        return self._tables[key]

    def _infer(self, path: tuple[str, str, str], name: Name) -> DeclaredTable | None:
        """Infer the table of a path, or take it from ``inference``; None as described for `find`.

        The inferred columns are added to ``inference``, and what fails to ``problems`` and ``unchecked``.
        """
        catalog = self.catalogs[path[0]]
        if catalog.kafka is None or self.inference is None:
            self.unchecked.append(name)
            return None
        try:
            definition = catalog.kafka.definition(path[-1], self.inference)
            return _declare(definition, path, catalog, name.where)
        except TopicMissingError:
            if len(name.parts) == 3:  # a shorter name may mean another table
                self.record_missing(path, name)
            return None
        except KdslError as e:
            self.problems += problems_of(e, f"the columns of {'.'.join(path)} cannot be inferred", name.where)
            self.unchecked.append(name)
            return None

    def record_missing(self, path: tuple[str, str, str], name: Name) -> None:
        """Record a table without a topic as a problem, and as unchecked.

        The cluster is asked for its other topics, to name them; if that fails, this is recorded, too.
        """
        names = self.table_names(path[0], name.where) or []
        message = f"the catalog {path[0]!r} has no table {path[-1]!r}{nearest(path[-1], names)}: its cluster has no "
        fix = f"use one of {listing(names[:20])}" if names else "create the topic first"
        self._add_problem("table-unknown", f"{message}such topic", fix, name.where)
        self.unchecked.append(name)

    def infer(self, table: DeclaredTable) -> DeclaredTable | None:
        """A table with the columns that its declaration leaves out, which are inferred and added to ``inference``.

        Returns:
            The table itself if it leaves none out, or could not be read completely. None if the columns are not known:
            the cluster is not asked, or the declaration or the inference has problems, which are recorded. Except for
            mistakes in the declaration, the table's name is then in ``unchecked``.
        """
        definition = table.definition()
        if not table.statement.complete or not leaves_columns_out(definition, table.options):
            return table
        errors = errors_besides_columns(definition)
        if errors:
            self.problems += errors
            return None
        if self.inference is None:
            self.unchecked.append(table.statement.name)
            return None
        try:
            cluster = Table(definition).cluster(self.cluster)
            inferred = with_inferred_columns(definition, cluster, self.inference, str(table.statement.name))
        except KdslError as e:
            self.problems += problems_of(e, f"the columns of {table.name} cannot be inferred", table.where)
            self.unchecked.append(table.statement.name)
            return None
        return _add_inferred(table, inferred)


def sink_class(kind: str) -> type[Sink]:
    """The class of a type of sink, which exists."""
    loaded = end_class("sink", kind)
    assert loaded is not None
    assert issubclass(loaded, Sink)
    return loaded


def read_sink(kind: str, options: Sequence[Option]) -> tuple[Sink, list[Problem], dict[str, Where]]:
    """Create the sink of a type from options.

    Args:
        kind: The type.
        options: The options of a catalog, and perhaps of a copy; ``type`` and ``connector`` do not count.

    Returns:
        The sink; what is wrong with options that it does not keep; and the locations of the options.
    """
    own = {o.key: o for o in options if o.key not in ("type", "connector")}
    sink, wrong = sink_class(kind).read({key: o.value for key, o in own.items()})
    locations = {key: o.where for key, o in own.items()}
    problems = [Problem(w.code, w.message, w.fix, locations.get(w.key, Where()), w.severity) for w in wrong]
    return sink, problems, locations


def errors_besides_columns(definition: TableDef) -> list[Problem]:
    """Return the errors that prevent the columns of a table from being inferred.

    Missing columns, and mistakes in computed columns, keys and watermarks, do not count; the primary key of an upsert
    table does.
    """
    declared = attrs.evolve(
        definition,
        columns=tuple(c for c in definition.columns if c.role != "computed"),
        primary_key=(),
        watermarks=(),
        problems=tuple(p for p in definition.problems if p.code not in OF_COLUMNS),
    )
    options = definition.options
    if isinstance(options, UpsertOptions):  # whose primary key is needed, and has declared columns
        declared = attrs.evolve(declared, primary_key=definition.primary_key)
    return [p for p in problems(declared, "read") if p.severity == "error" and p.code != "no-columns"]


def _reveal(address: str | Secret) -> str:
    """An address, with the password that may be in it."""
    return address.reveal() if isinstance(address, Secret) else address


def has_unknown_columns(table: DeclaredTable) -> bool:
    """Whether a table leaves columns out that were not inferred."""
    return table.inferred is None and leaves_columns_out(table.definition(), table.options)


def problems_of(error: KdslError, what: str, where: Where) -> list[Problem]:
    """Convert an error of a cluster or registry into problems at a location.

    Args:
        error: The error; those of a `ResolveError` are returned as they are, except for their location.
        what: What failed, which begins the message of any other error.
        where: The location; of a problem that has one, only the missing parts are added.
    """
    if isinstance(error, ResolveError):
        return [p.at(where) for p in error.problems]
    return [Problem("inference", f"{what}: {error}", "correct that, or declare the columns with CREATE TABLE", where)]


def _add_inferred(table: DeclaredTable, inferred: TableDef) -> DeclaredTable:
    """Return a declared table with the inferred columns and options of the value format, as if written in it."""
    assert inferred.inferred is not None
    assert inferred.value_format is not None
    names = set(inferred.inferred.columns)
    added = [PhysicalColumn(c.name, c.type, c.comment, where=table.where) for c in inferred.columns if c.name in names]
    identifier = inferred.value_format.identifier
    prefix = f"{identifier}." if "format" in table.options else f"value.{identifier}."
    return _add_to_statement(
        table.statement, added, inferred.value_format.to_strings(), prefix, inferred.inferred, table.where
    )


def _add_to_statement(
    statement: CreateTable,
    columns: Sequence[Column],
    format_options: Mapping[str, str],
    prefix: str,
    inferred: Inferred,
    where: Where,
) -> DeclaredTable:
    """Declare the table of a statement again, with more columns and with format options that it does not set itself.

    ``prefix`` is what the keys of ``format_options`` begin with in ``WITH``; ``where`` is the location of the added
    options. Mistakes are problems of the result.
    """
    known = {o.key for o in statement.options}
    options = [Option(prefix + k, v, where, where) for k, v in format_options.items() if prefix + k not in known]
    statement = attrs.evolve(statement, columns=(*statement.columns, *columns), options=(*statement.options, *options))
    return attrs.evolve(declare_table(statement), inferred=inferred)


def _declare(definition: TableDef, path: tuple[str, str, str], catalog: ScriptCatalog, where: Where) -> DeclaredTable:
    """Declare a catalog's table as a ``CREATE TABLE`` would, with the catalog's client and registry properties.

    Mistakes are problems of the result. Passwords of the registry are written into the options in plain text.
    """
    options = with_clause_options(definition, Placeholders())
    valid = catalog.options.valid()
    options |= {o.key: o.value for o in catalog.statement.options if o.key.startswith("properties.")}
    if valid.registry is not None:
        for side, chosen in (("key", definition.key_format), ("value", definition.value_format)):
            if chosen is not None and chosen.needs_registry:
                prefix = f"{side}.{chosen.identifier}."
                options[f"{prefix}url"] = _reveal(valid.registry)
                own = "schema-registry.properties."
                options |= {
                    f"{prefix}properties.{o.key.removeprefix(own)}": o.value
                    for o in catalog.statement.options
                    if o.key.startswith(own)
                }
    columns = tuple(
        MetadataColumn(c.name, c.type, c.metadata_key, c.virtual, c.comment, where=where)
        if c.role == "metadata"
        else PhysicalColumn(c.name, c.type, c.comment, where=where)
        for c in definition.columns
    )
    statement = CreateTable(
        where=where,
        name=Name(path, where),
        columns=columns,
        primary_key=PrimaryKey(definition.primary_key, where=where),
        options=tuple(Option(key, value, where, where) for key, value in options.items()),
    )
    return attrs.evolve(declare_table(statement), inferred=definition.inferred)
