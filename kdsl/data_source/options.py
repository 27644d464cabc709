"""The options of ``format("kdsl")`` that people write: which table, which cluster, which columns.

They are read in a Python process that Spark starts beside its driver, and become options that carry a plan
(`kdsl.run.librdkafka.options`). Those, which `kdsl.pipelines` makes, are passed on as they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs

from kdsl import load
from kdsl.client_settings import librdkafka
from kdsl.client_settings.settings import TABLE as KAFKA_SETTINGS
from kdsl.cluster import SERVERS, Cluster, Registry
from kdsl.ddl.load import read_definition
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError, Problem, ResolveError, Where, fail_on, listing, nearest
from kdsl.formats import format_names
from kdsl.plan.change_columns import read_by_record
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.run.librdkafka.datasource import FOUND
from kdsl.run.librdkafka.options import BY_NAME, MATCH, PLAN, read_options, write_options
from kdsl.secrets.hiding import contains_secret
from kdsl.spark_versions import pyspark_version
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kdsl.run.dataframes.match_batches import BatchMatch

TABLES = ("table", "file", "ddl")
"""The options that name a table; one is needed."""
REGISTRY = "schema.registry.url"
OWN = (*TABLES, "columns", "cluster", REGISTRY)
"""The options of the data source itself. Others are options of the connector, by Flink's keys, and client settings."""
_CATALOG = ("provider", "owner", "comment", "collation", "external", "is_managed_location", "location")
"""The properties of tables that Spark's catalog reserves for itself (``TABLE_RESERVED_PROPERTIES``)."""
_IN_CATALOG = "option."
_OF_QUERY = ("checkpointlocation", "queryname")
"""The options of a streaming write that Spark uses for the query, and passes on."""

_PROPERTIES = "properties."
_KAFKA = "kafka."
_EXAMPLE = "write table = 'shop.tables:Orders', file = 'tables.yaml#orders' or ddl = 'CREATE TABLE …'"
_CLUSTER_EXAMPLE = (
    "write cluster = 'shop.tables:shop' or 'clusters.yaml#production', or bootstrap.servers = 'host:port'"
)
_IN_SQL = (
    "Spark passes on the options of CREATE TEMPORARY VIEW, but not those of CREATE TABLE, which statements repeat: "
    "SELECT * FROM t WITH ('table' = '…')"
)
_AS_REFERENCE = "write a reference that each process resolves, such as ${file:PATH} or ${env:NAME}"
_HIDDEN_BY_SPARK = re.compile(r"(?i)secret|password|token|access[.]?key|url")
"""Spark hides an option if this matches its name or its value: the defaults of ``spark.redaction.regex`` and
``spark.sql.redaction.options.regex``."""
_PUBLIC = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain")
R = TypeVar("R")


def read_source_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of kdsl's source for a read. Those that contain a plan are returned as they are.

    Otherwise the table and the cluster are loaded, which may import modules, and the topic of dead letters is looked
    up.
    """
    if PLAN in options:
        return dict(options)
    from kdsl.run.librdkafka.read_task import PARALLELISM, WHOLE
    from kdsl.run.read import check_letter_topic

    request = _Request(options)
    declared = request.plan(lambda table, cluster: table.read_plan(request.columns, cluster))
    if declared is not None:
        request.problems += _read_problems(declared)
    plan, cluster = request.check(declared)
    if plan.upserts is not None:
        plan = read_by_record(plan)
    check_letter_topic(plan, cluster)
    # What becomes of the rows cannot be seen here; so they stay in the order of their keys.
    return {**_plan_options(plan, cluster), PARALLELISM: str(2 * (os.cpu_count() or 1)), WHOLE: "true"}


def check_stream_options(options: Mapping[str, str]) -> None:
    """Check that this version of Spark can end a stream where the options of `read_source_options` say.

    Limits of a batch that this version ignores are logged as a warning.
    """
    from kdsl.run.read import check_stream

    check_stream(read_options(options, ReadPlan)[0], pyspark_version())


def write_source_options(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of kdsl's source for a write of rows with a schema.

    Those that contain a plan are returned as they are, unless they say that the columns are matched by name. Otherwise
    brokers and topics are looked up, and brokers may create a topic that is missing.
    """
    from kdsl.run.dataframes.match_batches import match_schema
    from kdsl.run.write import check_before_write

    if PLAN in options and options.get(MATCH) != BY_NAME:
        return dict(options)
    if PLAN in options:
        plan, cluster = read_options(options, WritePlan)
        match: BatchMatch | None
        match, plan, problems = match_schema(schema, plan)
        _raise_all(problems, f"the DataFrame for {plan.table}")
    else:
        settings = {name: text for name, text in options.items() if name.lower() not in _OF_QUERY}
        request = _Request(settings)
        if request.columns is not None:
            request.add("'columns' chooses the columns of a read", "select the columns of the DataFrame instead")
        declared, match = request.plan(lambda table, cluster: table.write_plan(cluster)), None
        if declared is not None:
            match, declared, problems = match_schema(schema, declared)
            request.problems += [*write_problems(declared), *problems]
        plan, cluster = request.check(declared)
    assert match is not None  # otherwise there are problems
    check_before_write(plan, cluster)
    return {**_plan_options(plan, cluster), MATCH: match.to_text()}


def _plan_options(plan: ReadPlan | WritePlan, cluster: Cluster) -> dict[str, str]:
    """Return the options that carry a plan and a cluster; a KdslError if the plan's registry is missing or wrong."""
    try:
        return write_options(plan, cluster)
    except ResolveError as e:
        raise KdslError(str(e)) from None


def _read_problems(plan: ReadPlan) -> list[Problem]:
    """Return why a table cannot be read without the operations of a table."""
    problems = []
    if plan.computed:
        names = [column.column for column in plan.computed]
        what = "is computed" if len(names) == 1 else "are computed"
        message = f"{listing(names)} {what} by Spark after the read, which a data source cannot do"
        fix = "name the other columns in the option 'columns', separated by commas, or use Table.read or read_stream"
        problems.append(Problem("data-source-computed", message, fix))
    if plan.upserts is not None and plan.upserts.images:
        message = "the changes have before-images, for which Table.read and read_stream keep the last row of each key"
        fix = "write scan.changelog.mode = 'upsert', which returns each record as an upsert or a delete; or use those"
        problems.append(Problem("data-source-images", message, fix))
    if plan.dead_letters is not None and plan.dead_letters.max_count != NO_LIMIT:
        message = (
            f"max-count {plan.dead_letters.max_count} of the dead letters is counted by Table.read and read_stream"
        )
        problems.append(
            Problem(
                "data-source-letters", message, "write scan.dead-letter.max-count = '-1' for no limit, or use those"
            )
        )
    return [*problems, *_transport_problems(plan)]


def write_problems(plan: WritePlan) -> list[Problem]:
    """Return why a table cannot be written without the operations of a table: by ``format("kdsl")``, in a pipeline."""
    problems = []
    if plan.transactions is not None:
        message = "an exactly-once write needs the query's checkpoint, which Spark does not tell a data source"
        fix = (
            "use Table.write or write_stream; or declare 'sink.delivery-guarantee' = 'at-least-once', if records may "
            "be written again after a failure, as to an upsert table"
        )
        problems.append(Problem("data-source-exactly-once", message, fix))
    return [*problems, *_transport_problems(plan)]


def _transport_problems(plan: ReadPlan | WritePlan) -> list[Problem]:
    """Return why a plan's transport cannot be used; none for librdkafka."""
    if plan.transport == "librdkafka":
        return []
    message = "the transport 'jvm' is Spark's own Kafka connector, not this data source"
    return [Problem("data-source-transport", message, "use the operations of the table, or transport = 'librdkafka'")]


def _raise_all(problems: list[Problem], subject: str) -> None:
    """Raise a KdslError with all errors among problems, if there are any.

    A group of exceptions would be hard to read at the end of a traceback.
    """
    try:
        fail_on(problems, subject)
    except ResolveError as e:
        raise KdslError(str(e)) from None


class _Request:
    """What options ask for, with all problems.

    Args:
        options: The options; letter case does not matter in their names.

    Attributes:
        problems: All problems so far.
        columns: The wanted columns; None means all.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Load the table and the cluster, and divide the other options; what is wrong is added to `problems`.

        Modules may be imported.
        """
        self.problems: list[Problem] = []
        self._options = _without_catalog({name.lower(): text for name, text in options.items()})
        names = self._options.get("columns")
        self.columns = None if names is None else [name.strip() for name in names.split(",") if name.strip()]
        if names is not None and not self.columns:
            self.add("'columns' names no column", "write their names, separated by commas, or leave the option out")
        self._definition = self._load(self._load_table, _EXAMPLE)
        self._given_cluster = self._load(self._load_cluster, _CLUSTER_EXAMPLE)
        properties = self._set_connector_options()
        if self._given_cluster is not None and SERVERS in properties:
            self._given_cluster = _at_servers(self._given_cluster, properties[SERVERS])
        self._check_secrets()
        if self._definition is not None:
            merged = self._definition.properties.merge(properties)
            self._definition = attrs.evolve(self._definition, properties=merged)

    def add(self, message: str, fix: str) -> None:
        """Add a problem of the options."""
        self.problems.append(Problem("data-source-option", message, fix))

    def plan(self, make: Callable[[Table, Cluster | None], R]) -> R | None:
        """Return the plan that a function makes of the table and the cluster; None if it fails, or there is no table.

        Its errors, and brokers that are not known, are added to `problems`.
        """
        if self._definition is None:
            return None
        table = Table(self._definition)
        if self._given_cluster is None and SERVERS not in self._definition.properties:
            self.add(f"{table.name} does not say where its brokers are", f"write {SERVERS} = 'host:port'")
        try:
            return make(table, self._cluster)
        except ResolveError as e:
            self.problems += e.problems
        except KdslError as e:
            self.add(str(e), "correct the option 'columns'")
        return None

    def check(self, plan: R | None) -> tuple[R, Cluster]:
        """Return the plan, and the cluster with the table's own properties, unless there are problems."""
        table = None if self._definition is None else Table(self._definition)
        name = None if table is None else table.name
        located = [p.at(Where(table=name)) for p in self.problems]
        _raise_all(list(dict.fromkeys(located)), "the data source 'kdsl'" if name is None else name)
        assert table is not None
        assert plan is not None
        try:
            return plan, self._with_registry(table.cluster(self._cluster))
        except ResolveError as e:
            raise KdslError(str(e)) from None

    @property
    def _cluster(self) -> Cluster | None:
        """The given cluster, or the one of the table's properties, with the registry of the options; None for none."""
        if self._given_cluster is not None:
            return self._with_registry(self._given_cluster)
        servers = None if self._definition is None else self._definition.properties.get(SERVERS)
        return None if servers is None else self._with_registry(Cluster(str(servers)))

    def _with_registry(self, cluster: Cluster) -> Cluster:
        """Return the cluster, with the registry of the options in place of its own if they name one."""
        url = self._options.get(REGISTRY)
        return cluster if url is None else attrs.evolve(cluster, registry=Registry(url))

    def _check_secrets(self) -> None:
        """Add a problem for each literal secret in an option whose value Spark shows wherever it shows a plan."""
        for name, text in self._options.items():
            if _HIDDEN_BY_SPARK.search(name) or _HIDDEN_BY_SPARK.search(text):
                continue
            secrets = [name] if contains_secret(name, text) else []
            if name == "ddl" and self._definition is not None:
                formats = (self._definition.key_format, self._definition.value_format)
                secrets = list(self._definition.properties.split()[1])
                secrets += [key for each in formats if each is not None for key in each.split()[1]]
            for secret in secrets:
                if not secret.endswith(_PUBLIC):
                    self.add(f"Spark would show the secret {secret!r} in plans, because it is a literal", _AS_REFERENCE)

    def _load(self, load_one: Callable[[], R | None], fix: str) -> R | None:
        """Return what a function loads; None after an error, whose problems are added, with a fix if they have none."""
        try:
            return load_one()
        except ResolveError as e:
            self.problems += e.problems
        except KdslError as e:
            self.add(str(e), fix)
        return None

    def _load_table(self) -> TableDef | None:
        """Load the definition of the one table that the options name, which may import a module.

        Without exactly one, a problem is added, and the result is None.
        """
        named = [name for name in TABLES if name in self._options]
        if len(named) != 1:
            what = f"the table by {listing(named)}" if named else "no table"
            self.add(f"the options name {what}", _EXAMPLE if named else f"{_EXAMPLE}; {_IN_SQL}")
            return None
        text = self._options[named[0]]
        match named[0]:
            case "ddl":
                return read_definition(text)
            case "file":
                path, _, name = text.partition("#")
                return load.table(f"{path}:{name}" if name else path).definition
        return load.table(text).definition

    def _load_cluster(self) -> Cluster | None:
        """Return the cluster that the option ``cluster`` names; None without it."""
        text = self._options.get("cluster")
        return None if text is None else load.cluster(text.replace("#", ":"))

    def _set_connector_options(self) -> dict[str, str]:
        """Set the connector's options in the definition, if there is one, and return the client settings.

        Options of `OWN` are left out. Unknown options and wrong values become problems.
        """
        kind = KafkaOptions if self._definition is None else type(self._definition.options)
        keys = {a.metadata["key"].lower(): (a.metadata["key"], a.name) for a in kind.declarations()}
        groups = {key.removesuffix("*"): name for key, (_, name) in keys.items() if key.endswith("*")}
        of_connector = {key: names for key, names in keys.items() if not key.endswith("*")}
        set_here: dict[str, str] = {}
        changed: set[str] = set()
        properties: dict[str, str] = {}
        for name, text in self._options.items():
            setting = name.removeprefix(_PROPERTIES)
            if name in OWN:
                continue
            group = next((group for group in groups if name.startswith(group) and name != group), None)
            if name in of_connector or group is not None:
                key, attribute = of_connector[name] if group is None else (name, groups[group])
                set_here[key] = text
                changed.add(attribute)
            elif _is_client_setting(setting):
                properties[setting] = text
            elif name.startswith(_KAFKA) and _is_client_setting(name.removeprefix(_KAFKA)):
                self.add(f"there is no option {name!r}", f"write {name.removeprefix(_KAFKA)!r}, as Kafka calls it")
            elif _is_declared(name):
                self.add(
                    f"{name!r} is a part of the table's declaration, not an option of a read or a write",
                    "set it in the declaration",
                )
            else:
                near = nearest(name, [*OWN, *of_connector, *KAFKA_SETTINGS])
                fix = f"use {listing(OWN)}, a key of the connector, or a setting of Kafka's clients"
                self.add(f"there is no option {name!r}{near}", fix)
        if set_here and self._definition is not None:
            options = kind.from_strings(set_here)
            self.problems += options.problems(lambda _, key: repr(key))
            if not list(self._definition.options.problems()):  # which are reported with the table
                values = {name: getattr(options, name) for name in changed}
                for name in changed & set(groups.values()):
                    values[name] = {**getattr(self._definition.options, name), **values[name]}
                merged: KafkaOptions = attrs.evolve(cast("Any", self._definition.options), **values)
                self._definition = attrs.evolve(self._definition, options=merged)
        return properties


def _without_catalog(options: dict[str, str]) -> dict[str, str]:
    """Return options without what Spark's catalog adds for a table that SQL has created ``USING kdsl``.

    That is the place of the table, ``path`` (a topic has none), and if the provider is kdsl also the properties that
    Spark reserves, and each option once more behind ``option.``.
    """
    added = {"path"}
    if options.get("provider", "").lower() == FOUND:
        added |= {*_CATALOG, *(f"{_IN_CATALOG}{name}" for name in options)}
    return {name: text for name, text in options.items() if name not in added}


def _at_servers(cluster: Cluster, servers: str) -> Cluster:
    """Return a cluster with other bootstrap servers."""
    others = {name: value for name, value in cluster.properties.items() if name != SERVERS}
    return attrs.evolve(cluster, bootstrap_servers=servers, properties=others)


def _is_declared(name: str) -> bool:
    """Whether a name is an option of a table that is set in its declaration alone: its connector, formats and keys."""
    of_format = name.removeprefix("key.").removeprefix("value.").partition(".")[0]
    return name in ("connector", "format", "key.format", "value.format", "key.fields") or of_format in format_names()


def _is_client_setting(name: str) -> bool:
    """Whether a name is a setting of Kafka's clients, Java's or librdkafka's."""
    canonical = librdkafka.canonical(name)
    return (
        name in KAFKA_SETTINGS
        or canonical in KAFKA_SETTINGS
        or name in librdkafka.all_properties()
        or (name in librdkafka.OWNED or name.startswith("config.providers."))
    )
