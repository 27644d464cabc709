"""The catalogs of a script: what ``CREATE CATALOG`` registers, and what names of several parts mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from kdsl.catalog.kafka import KafkaCatalog
from kdsl.catalog.options import CatalogOptions, cloud_api_problem
from kdsl.client_settings.properties import Properties
from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.ddl.statements import CreateCatalog, DropCatalog, Name, Option, Use
from kdsl.errors import KdslError, Problem, ResolveError, Where, listing, nearest
from kdsl.ingest.ends import Sink, end_class, end_types
from kdsl.secrets import Secret

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
        kafka: The catalog; None where its brokers are not known or its options have mistakes.
        cluster: Its cluster; None where its brokers are not known.
    """

    statement: CreateCatalog
    options: CatalogOptions
    kafka: KafkaCatalog | None = None
    cluster: Cluster | None = None

    @property
    def database(self) -> str:
        """The name of its database."""
        return self.options.valid().default_database

    @property
    def registry_url(self) -> str | None:
        """The address of its schema registry, with the password that may be in it; None without one."""
        address: str | Secret | None = self.options.valid().registry
        return address.reveal() if isinstance(address, Secret) else address


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
        problems: The list to which the problems of statements and of names are added.
    """

    def __init__(self, cluster: Cluster | None, problems: list[Problem]) -> None:
        self.cluster, self.problems = cluster, problems
        self.catalogs: dict[str, ScriptCatalog] = {}
        self.sinks: dict[str, SinkCatalog] = {}
        self.current: tuple[str, str] = (DEFAULT_CATALOG, DEFAULT_DATABASE)

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
            try:
                find_sink_class(kind)
            except KdslError as e:
                self._add_problem("catalog-type", str(e), "or choose another type", locations["type"])
                return
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
        catalog = ScriptCatalog(statement, options)
        cluster = None if kind != _KAFKA else self._find_cluster(catalog, where)
        kafka = None
        if cluster is not None and not [*options.problems(), *options.check()]:
            kafka = KafkaCatalog.of_options(name, cluster, options)
        self.catalogs[name] = attrs.evolve(catalog, kafka=kafka, cluster=cluster)

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

    def _find_cluster(self, catalog: ScriptCatalog, where: Where) -> Cluster | None:
        """The cluster of a catalog; None, with a problem, if the brokers are missing or the options cannot be used.

        With a cluster of the run, it is that one with the properties and registry of the catalog, whose brokers are
        ignored.
        """
        name, valid, url = catalog.statement.name.last, catalog.options.valid(), catalog.registry_url
        own = {key: value for key, value in valid.properties.items() if key != SERVERS}
        servers = Properties(valid.properties).reveal().get(SERVERS)
        try:
            registry = None if url is None else Registry(url, valid.registry_properties)
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
        """Forget a catalog; the current one (it stays) or a missing one is recorded as a problem.

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

    @property
    def has_created(self) -> bool:
        """Whether the script has created a catalog."""
        return bool(self.catalogs or self.sinks)

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

        Such a table is recorded as a problem: only copies fill it (`kdsl.scripts.copy_planner`).
        """
        if len(name.parts) < 3 or name.parts[0] not in self.sinks:
            return False
        message = f"the tables of the catalog {name.parts[0]!r} are only filled by copies of other tables"
        fix = "write CREATE TABLE … AS TABLE to fill them, and read them with Spark in Python"
        self._add_problem("catalog-sink", message, fix, name.where)
        return True


def find_sink_class(kind: str) -> type[Sink]:
    """The class of a type of sink, which exists; PluginError if it cannot be loaded."""
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
    sink, wrong = find_sink_class(kind).read({key: o.value for key, o in own.items()})
    locations = {key: o.where for key, o in own.items()}
    problems = [Problem(w.code, w.message, w.fix, locations.get(w.key, Where()), w.severity) for w in wrong]
    return sink, problems, locations


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
