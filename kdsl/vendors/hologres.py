"""The sink of Alibaba's Hologres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote

import attrs

from kdsl.formats import TableId
from kdsl.ingest.ends import JdbcTables, Sink, SinkRules
from kdsl.ingest.ends.tables import wrong_database_table
from kdsl.options import option


class HologresTables(Sink):
    """Writes tables of Hologres, which speaks the protocol of Postgres and cannot change the types of columns."""

    type: ClassVar[str] = "hologres"
    rules: ClassVar[SinkRules] = attrs.evolve(JdbcTables.rules, title="Hologres", alters_types=False, max_columns=None)
    database_option: ClassVar[str | None] = "dbname"

    endpoint: str = option("endpoint", "The host and port.")
    dbname: str = option("dbname", "The database.")
    username: str = option("username", "The user; may be a reference to a secret.")
    password: str = option("password", "The password, best a reference such as ${env:NAME}.", secret=True)

    def wrong_table(self, table: TableId) -> str | None:
        """Why a name cannot be a table of a database; None if it can."""
        return wrong_database_table(table)

    def locate(self) -> Mapping[str, Any]:
        """The host and the database."""
        return {"endpoint": self.endpoint, "database": self.dbname}

    def writer(self, concurrency: int, name: str = "") -> Any:
        """The writer of the sink ``jdbc``."""
        return self.valid().jdbc().writer(concurrency, name)

    def jdbc(self) -> JdbcTables:
        """The same tables as a sink of the type ``jdbc``, with the options that all sinks have."""
        url = f"jdbc:postgresql://{self.endpoint}/{quote(self.dbname, safe='')}"
        shared = {a.name: getattr(self, a.name) for a in Sink.declarations()}
        return JdbcTables(url=url, username=self.username, password=self.password, **shared)
