# ruff: noqa: S608  # names are quoted, tables are named by the user's own code
"""The SQL by which changes go from staging tables into a table, in the words of its database.

Pure functions over names that are quoted already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

Dialect = Literal["on-conflict", "merge", "update-insert"]
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
    """The database of a JDBC address, as ``postgresql``."""
    return url.split(":")[1].lower() if url.count(":") > 1 else ""


def dialect_of(url: str) -> Dialect:
    """The dialect of a JDBC address: ``MERGE``, which the standard has, unless the database is known to lack it."""
    return _BY_URL.get(product(url), "merge")


@attrs.frozen
class Statements:
    """What is said to the database.

    Attributes:
        url: The JDBC address, which names the database.
        dialect: How rows are upserted.
        table: The table.
        keys: The columns of the key.
        columns: All columns that are written, those of the key among them.
    """

    url: str
    dialect: Dialect
    table: str
    keys: Sequence[str]
    columns: Sequence[str]

    @property
    def others(self) -> list[str]:
        """The columns that are not of the key."""
        return [name for name in self.columns if name not in self.keys]

    def staging(self, stage: str, columns: Sequence[str]) -> str:
        """Makes an empty table with columns as those of the table."""
        return _EMPTY_COPY.get(product(self.url), _STANDARD_COPY).format(stage, ", ".join(columns), self.table)

    def deletes(self, stage: str) -> str:
        """Deletes the rows whose keys stand in a staging table."""
        return f"DELETE FROM {self.table} WHERE EXISTS ({self._staged('1', stage, self.table)})"

    def upserts(self, stage: str) -> list[str]:
        """Inserts or updates the rows of a staging table."""
        names = ", ".join(self.columns)
        match self.dialect:
            case "on-conflict":
                sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in self.others)
                action = f"UPDATE SET {sets}" if sets else "NOTHING"
                return [
                    f"INSERT INTO {self.table} ({names}) SELECT {names} FROM {stage} "
                    f"ON CONFLICT ({', '.join(self.keys)}) DO {action}"
                ]
            case "merge":
                on = " AND ".join(f"t.{key} = s.{key}" for key in self.keys)
                sets = ", ".join(f"{name} = s.{name}" for name in self.others)
                update = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
                values = ", ".join(f"s.{name}" for name in self.columns)
                end = ";" if product(self.url) == "sqlserver" else ""
                as_ = "" if product(self.url) == "oracle" else "AS "
                return [
                    f"MERGE INTO {self.table} {as_}t USING {stage} {as_}s ON ({on}){update} "
                    f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values}){end}"
                ]
            case "update-insert":
                sets = ", ".join(f"{name} = ({self._staged(f's.{name}', stage, self.table)})" for name in self.others)
                there = f"EXISTS ({self._staged('1', stage, self.table)})"
                first = [f"UPDATE {self.table} SET {sets} WHERE {there}"] if sets else []
                values = ", ".join(f"s.{name}" for name in self.columns)
                known = " AND ".join(f"{self.table}.{key} = s.{key}" for key in self.keys)
                return [
                    *first,
                    f"INSERT INTO {self.table} ({names}) SELECT {values} FROM {stage} s "
                    f"WHERE NOT EXISTS (SELECT 1 FROM {self.table} WHERE {known})",
                ]

    def _staged(self, wanted: str, stage: str, table: str) -> str:
        on = " AND ".join(f"s.{key} = {table}.{key}" for key in self.keys)
        return f"SELECT {wanted} FROM {stage} s WHERE {on}"
