"""The tables of a database, with the login of a source or a sink."""

from __future__ import annotations

from kdsl.changelog.to_jdbc import JdbcTarget, jdbc
from kdsl.ingest.ends import JdbcSnapshot, JdbcTables
from kdsl.secrets import Secret


def find_database_table(end: JdbcTables | JdbcSnapshot, table: str) -> JdbcTarget:
    """A table of a database, with the login and driver of a source or sink; nothing is connected yet.

    A source adds its properties of the driver.

    Args:
        end: The source or sink.
        table: The table, as in SQL.
    """
    options: dict[str, object] = {"user": end.username, "password": end.password, "driver": end.driver}
    if isinstance(end, JdbcSnapshot):
        options = {**end.driver_properties, **options}
    properties = {
        key: value.reveal() if isinstance(value, Secret) else str(value)
        for key, value in options.items()
        if value is not None
    }
    return jdbc(end.url.reveal() if isinstance(end.url, Secret) else str(end.url), table, properties)
