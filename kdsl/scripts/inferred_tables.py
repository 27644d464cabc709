"""The tables of a script's Kafka catalogs, and the columns that tables leave out, inferred from the cluster."""

from __future__ import annotations

import attrs

from kdsl.catalog.declared import leaves_columns_out, with_inferred_columns
from kdsl.catalog.stored import Inference
from kdsl.codegen.secret import Placeholders
from kdsl.codegen.with_options import with_clause_options
from kdsl.ddl.statements import CreateTable, MetadataColumn, Name, Option, PhysicalColumn, PrimaryKey
from kdsl.ddl.tables import OF_COLUMNS, DeclaredTable, declare_table
from kdsl.declare.connector import UpsertOptions
from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError, Problem, TopicMissingError, Where, listing, nearest
from kdsl.resolve import problems
from kdsl.scripts.catalogs import ScriptCatalog, ScriptCatalogs, problems_of
from kdsl.table import Table


class InferredTables:
    """Infers the tables of a script's Kafka catalogs, and the columns that tables leave out.

    Args:
        catalogs: The catalogs of the script.
        inference: What was inferred before, and is stored; what is inferred is added to it. None where the cluster is
            not asked.
        problems: The list to which problems are added.

    Attributes:
        unchecked: The tables whose columns are not known, because the cluster is not asked.
    """

    def __init__(self, catalogs: ScriptCatalogs, inference: Inference | None, problems: list[Problem]) -> None:
        self.inference, self.problems = inference, problems
        self.unchecked: list[Name] = []
        self._catalogs = catalogs
        self._tables: dict[str, tuple[ScriptCatalog, DeclaredTable | None]] = {}

    def list_table_names(self, catalog: str, where: Where) -> list[str] | None:
        """The tables of a Kafka catalog, for which the cluster is asked.

        None if the cluster is not asked; and, with a problem, if that fails or the catalog is one of a sink.
        """
        if catalog in self._catalogs.sinks:
            message = f"the catalog {catalog!r} does not list its tables"
            fix = "remove the statement, and list them with Spark in Python"
            self.problems.append(Problem("catalog-sink", message, fix, where))
            return None
        known = self._catalogs.catalogs[catalog].kafka
        if known is None or self.inference is None:
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
        path = self._catalogs.path(name)
        if path is None:
            return None
        key, catalog = ".".join(path), self._catalogs.catalogs[path[0]]
        if key not in self._tables or self._tables[key][0] is not catalog:
            self._tables[key] = catalog, self._infer(path, catalog, name)
        return self._tables[key][1]

    def _infer(self, path: tuple[str, str, str], catalog: ScriptCatalog, name: Name) -> DeclaredTable | None:
        """Infer the table of a path, or take it from ``inference``; None as described for `find`.

        The inferred columns are added to ``inference``, and what fails to ``problems`` and ``unchecked``.
        """
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
        names = self.list_table_names(path[0], name.where) or []
        message = f"the catalog {path[0]!r} has no table {path[-1]!r}{nearest(path[-1], names)}: its cluster has no "
        fix = f"use one of {listing(names[:20])}" if names else "create the topic first"
        self.problems.append(Problem("table-unknown", f"{message}such topic", fix, name.where))
        self.unchecked.append(name)

    def add_columns(self, table: DeclaredTable) -> DeclaredTable | None:
        """A table with the columns that its declaration leaves out, which are inferred and added to ``inference``.

        Returns:
            The table itself if it leaves none out, or could not be read completely. None if the columns are not known:
            the cluster is not asked, or the declaration or the inference has problems, which are recorded. Except for
            mistakes in the declaration, the table's name is then in ``unchecked``.
        """
        definition = table.definition()
        if not table.statement.complete or not leaves_columns_out(definition, table.options):
            return table
        errors = find_errors_besides_columns(definition)
        if errors:
            self.problems += errors
            return None
        if self.inference is None:
            self.unchecked.append(table.statement.name)
            return None
        try:
            cluster = Table(definition).cluster(self._catalogs.cluster)
            inferred = with_inferred_columns(definition, cluster, self.inference, str(table.statement.name))
        except KdslError as e:
            self.problems += problems_of(e, f"the columns of {table.name} cannot be inferred", table.where)
            self.unchecked.append(table.statement.name)
            return None
        return _add_inferred(table, inferred)


def find_errors_besides_columns(definition: TableDef) -> list[Problem]:
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


def has_unknown_columns(table: DeclaredTable) -> bool:
    """Whether a table leaves columns out that were not inferred."""
    return table.inferred is None and leaves_columns_out(table.definition(), table.options)


def _add_inferred(table: DeclaredTable, inferred: TableDef) -> DeclaredTable:
    """Declare a table again with the inferred columns and options of the value format, as if written in it.

    Its expressions may use these columns, so problems of expressions are those of the result only.
    """
    assert inferred.inferred is not None
    assert inferred.value_format is not None
    names = set(inferred.inferred.columns)
    columns = [
        PhysicalColumn(c.name, c.type, c.comment, where=table.where) for c in inferred.columns if c.name in names
    ]
    identifier = inferred.value_format.identifier
    prefix = f"{identifier}." if "format" in table.options else f"value.{identifier}."
    format_options = {prefix + key: value for key, value in inferred.value_format.to_strings().items()}
    options = [Option(k, v, table.where) for k, v in format_options.items() if k not in table.options]
    statement = table.statement
    statement = attrs.evolve(statement, columns=(*statement.columns, *columns), options=(*statement.options, *options))
    result = declare_table(statement)
    own = [p for p in table.problems if p.code not in OF_COLUMNS and p not in result.problems]
    return attrs.evolve(result, problems=(*own, *result.problems), inferred=inferred.inferred)


def _declare(definition: TableDef, path: tuple[str, str, str], catalog: ScriptCatalog, where: Where) -> DeclaredTable:
    """Declare a catalog's table as a ``CREATE TABLE`` would, with the catalog's client and registry properties.

    Mistakes are problems of the result. Passwords of the registry are written into the options in plain text.
    """
    options = with_clause_options(definition, Placeholders())
    url = catalog.registry_url
    options |= {o.key: o.value for o in catalog.statement.options if o.key.startswith("properties.")}
    if url is not None:
        for side, chosen in (("key", definition.key_format), ("value", definition.value_format)):
            if chosen is not None and chosen.needs_registry:
                prefix = f"{side}.{chosen.identifier}."
                options[f"{prefix}url"] = url
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
        options=tuple(Option(key, value, where) for key, value in options.items()),
    )
    return attrs.evolve(declare_table(statement), inferred=definition.inferred)
