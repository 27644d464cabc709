# ruff: noqa: S608  # names are quoted, tables are named by the user's own code
"""The SQL that applies changes from staging tables to a table, in the dialect of its database.

Pure functions over names that are quoted already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

Dialect = Literal["on-conflict", "merge", "update-insert"]
BATCHES = "kdsl_changelog_batches"
"""The table of the last batch of each writer: ``writer``, ``target``, ``batch_id``, ``batch_content``."""
DIALECTS: tuple[Dialect, ...] = ("on-conflict", "merge", "update-insert")

_BY_URL: dict[str, Dialect] = {
    "postgresql": "on-conflict",
    "mysql": "update-insert",
    "mariadb": "update-insert",
}
_EMPTY_COPY = {
    "postgresql": "CREATE TABLE {0} AS SELECT {1} FROM {2} WHERE 1 = 0",
    "mysql": "CREATE TABLE {0} AS SELECT {1} FROM {2} WHERE 1 = 0",
    "mariadb": "CREATE TABLE {0} AS SELECT {1} FROM {2} WHERE 1 = 0",
    "oracle": "CREATE TABLE {0} AS SELECT {1} FROM {2} WHERE 1 = 0",
    "sqlserver": "SELECT {1} INTO {0} FROM {2} WHERE 1 = 0",
}
_STANDARD_COPY = "CREATE TABLE {0} AS SELECT {1} FROM {2} WITH NO DATA"


def product(url: str) -> str:
    """The database that a JDBC address names, as ``postgresql``; empty if it names none."""
    return url.split(":")[1].lower() if url.count(":") > 1 else ""


def dialect_of(url: str) -> Dialect:
    """The dialect of a JDBC address: standard SQL's ``MERGE``, unless the database is known not to support it."""
    return _BY_URL.get(product(url), "merge")


_STRING_TYPES = ("text", "varchar", "bpchar", "char", "name")


def cast_type(url: str, spark: str, database: str) -> str | None:
    """The type to which the strings of a column must be cast, because Spark's JDBC writer cannot write that type.

    Only Postgres needs that.

    Args:
        url: The JDBC address.
        spark: The type of the DataFrame's column, as ``string`` or ``array<string>``.
        database: The driver's name of the type in the database: ``jsonb``, ``_uuid``, ``"shop"."mood"``.

    Returns:
        The type as it is named in ``database``, in quotes if it needs them; None if the strings need no cast.
    """
    strings = {"string": _STRING_TYPES, "array<string>": tuple(f"_{name}" for name in _STRING_TYPES)}.get(spark, ())
    if product(url) != "postgresql" or not strings or database in strings:
        return None
    return database if re.fullmatch(r'[a-z_][a-z0-9_]*|".+"', database) else '"{}"'.format(database.replace('"', '""'))


def _staging_type(kind: str) -> str:
    """The type of a staging column for a type that needs a cast; names of Postgres' arrays begin with an underscore."""
    return "text[]" if kind.rpartition(".")[2].strip('"').startswith("_") else "text"


def _find_unused_value(column: str, kind: str, table: str) -> str | None:
    """Write an SQL expression for a value that no row of a table has, different for each number ``p.kdsl_n``.

    None if none is known for the type ``kind``, in Postgres' spelling.
    """
    least = f"(SELECT MIN({column}) FROM {table})"
    name = kind.partition("(")[0].strip()
    match name:
        case "smallint" | "integer" | "bigint" | "numeric":
            return f"LEAST({least}, 0) - p.kdsl_n"
        case "date":
            return f"{least} - p.kdsl_n::integer"
        case "text":
            return "md5(random()::text || p.kdsl_n::text)"
        case "character varying":
            size = kind.partition("(")[2].rstrip(")") or "32"
            return f"left(md5(random()::text || p.kdsl_n::text), {size})"
        case "uuid":
            return "gen_random_uuid()"
        case _ if name.startswith("timestamp"):
            return f"{least} - p.kdsl_n * interval '1 day'"
        case _:
            return None


@attrs.frozen
class Statements:
    """The SQL statements for some columns of a table.

    Attributes:
        url: The JDBC address, which names the database.
        dialect: How rows are upserted.
        table: The table.
        keys: The columns of the key.
        columns: All columns that are written, including those of the key.
        casts: The types of columns, such as ``jsonb`` and ``uuid``, that are staged as strings and then cast.
    """

    url: str = attrs.field(repr=False)
    dialect: Dialect
    table: str
    keys: Sequence[str]
    columns: Sequence[str]
    casts: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def begin(self) -> list[str]:
        """The first statements of a transaction: they make Postgres check deferrable constraints at its end."""
        return ["SET CONSTRAINTS ALL DEFERRED"] if product(self.url) == "postgresql" else []

    @property
    def non_key_columns(self) -> list[str]:
        """The columns that are not part of the key."""
        return [name for name in self.columns if name not in self.keys]

    def staging(self, stage: str, columns: Sequence[str], template: str) -> str:
        """Write the statement that creates an empty staging table with some columns of a table, the template."""
        casts = {name: f"CAST({name} AS {_staging_type(kind)}) AS {name}" for name, kind in self.casts.items()}
        selected = ", ".join(casts.get(name, name) for name in columns)
        return _EMPTY_COPY.get(product(self.url), _STANDARD_COPY).format(stage, selected, template)

    def deletes(self, stage: str) -> str:
        """Write the statement that deletes the rows whose keys are in a staging table."""
        matching = self._select_matching("1", self._cast_stage(stage, self.keys), self.table)
        return f"DELETE FROM {self.table} WHERE EXISTS ({matching})"

    def inserts(self, stage: str) -> str:
        """Write the statement that inserts the rows of a staging table."""
        names = ", ".join(self.columns)
        source = self._cast_stage(stage, self.columns)
        return f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {source}{' s' if self.casts else ''}"

    def upserts(self, stage: str) -> list[str]:
        """Write the statements that insert or update the rows of a staging table, in the dialect of the database.

        It is one, or for ``"update-insert"`` an UPDATE, if there are columns besides the key, and an INSERT.
        """
        names = ", ".join(self.columns)
        stage = self._cast_stage(stage, self.columns)
        match self.dialect:
            case "on-conflict":
                sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in self.non_key_columns)
                action = f"UPDATE SET {sets}" if sets else "NOTHING"
                return [
                    f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {stage}{' s' if self.casts else ''} "
                    f"ON CONFLICT ({', '.join(self.keys)}) DO {action}"
                ]
            case "merge":
                on = " AND ".join(f"t.{key} = s.{key}" for key in self.keys)
                sets = ", ".join(f"{name} = s.{name}" for name in self.non_key_columns)
                update = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
                values = ", ".join(f"s.{name}" for name in self.columns)
                end = ";" if product(self.url) == "sqlserver" else ""
                as_ = "" if product(self.url) == "oracle" else "AS "
                return [
                    f"MERGE INTO {self.table} {as_}t USING {stage} {as_}s ON ({on}){update} "
                    f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values}){end}"
                ]
            case "update-insert":
                sets = self._set_clauses(stage, self.non_key_columns)
                exists = f"EXISTS ({self._select_matching('1', stage, self.table)})"
                first = [f"UPDATE {self.table} SET {sets} WHERE {exists}"] if sets else []
                values = ", ".join(f"s.{name}" for name in self.columns)
                same_key = " AND ".join(f"{self.table}.{key} = s.{key}" for key in self.keys)
                return [
                    *first,
                    f"INSERT INTO {self.table} ({names}) SELECT {values} FROM {stage} s "
                    f"WHERE NOT EXISTS (SELECT 1 FROM {self.table} WHERE {same_key})",
                ]

    def updates(self, stage: str) -> str:
        """Write the statement that updates the rows whose keys are in a staging table, and inserts none.

        Without columns besides the key, the first of the key is set to itself, so that the row counts.
        """
        stage = self._cast_stage(stage, self.columns)
        columns = self.non_key_columns or self.keys[:1]  # an update that changes nothing still counts the row
        match self.dialect:
            case "on-conflict":
                sets = ", ".join(f"{name} = s.{name}" for name in columns)
                on = " AND ".join(f"{self.table}.{key} = s.{key}" for key in self.keys)
                return f"UPDATE {self.table} SET {sets} FROM {stage} s WHERE {on}"
            case _:
                exists = self._select_matching("1", stage, self.table)
                return f"UPDATE {self.table} SET {self._set_clauses(stage, columns)} WHERE EXISTS ({exists})"

    def free_unique_values(self, stage: str, column: str, kind: str, *, nullable: bool) -> str | None:
        """Write the statement that replaces changing values of a unique column by values that no row has.

        Then rows can swap their values. Only Postgres needs this: it compares each row with the others when it is
        written.

        Args:
            stage: The staging table.
            column: The column.
            kind: Its type, in Postgres' spelling.
            nullable: Whether it is nullable; then NULL is the value.

        Returns:
            The statement; None if no unused value of the type is known.
        """
        unused = "NULL" if nullable else _find_unused_value(column, kind, self.table)
        if unused is None:
            return None
        keys = ", ".join(f"t.{key}" for key in self.keys)
        on = " AND ".join(f"t.{key} = s.{key}" for key in self.keys)
        changing = f"{self._cast_stage(stage, self.columns)} s ON {on} AND t.{column} IS DISTINCT FROM s.{column}"
        numbered = f"SELECT {keys}, row_number() OVER () AS kdsl_n FROM {self.table} t JOIN {changing}"
        same_key = " AND ".join(f"{self.table}.{key} = p.{key}" for key in self.keys)
        return f"UPDATE {self.table} SET {column} = {unused} FROM ({numbered}) p WHERE {same_key}"

    def _cast_stage(self, stage: str, columns: Sequence[str]) -> str:
        """The name of a staging table; a subquery that casts its strings to the table's types, if columns need that."""
        if not any(name in self.casts for name in columns):
            return stage
        casts = (f"CAST({name} AS {self.casts[name]}) AS {name}" if name in self.casts else name for name in columns)
        return f"(SELECT {', '.join(casts)} FROM {stage})"

    def _set_clauses(self, stage: str, columns: Sequence[str]) -> str:
        """Write the assignments of an UPDATE that takes columns from the row of a staging table with the same key."""
        return ", ".join(f"{name} = ({self._select_matching(f's.{name}', stage, self.table)})" for name in columns)

    def _select_matching(self, expression: str, stage: str, table: str) -> str:
        """Write a subquery (without parentheses) of an expression over the staged rows with the outer row's key."""
        on = " AND ".join(f"s.{key} = {table}.{key}" for key in self.keys)
        return f"SELECT {expression} FROM {stage} s WHERE {on}"
