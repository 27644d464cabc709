"""Ends whose tables are in Delta Lake or in a database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from kdsl.changelog.address import hide_login, name_database
from kdsl.changelog.dialects import BATCHES, product
from kdsl.client_settings.properties import Properties, Value
from kdsl.formats import TableId
from kdsl.ingest.ends.end import COMMAS, Sink, SinkRules, Source, WrongOption, at_least_one
from kdsl.ingest.ids import parse_id
from kdsl.ingest.selectors import RoutePattern, SelectorError
from kdsl.options import option
from kdsl.plan.change_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from kdsl.plugins import import_object
from kdsl.secrets import Secret

CHANGE_FEED = "delta.enableChangeDataFeed"
"""The property of a Delta table by which it has a change data feed."""
CHANGE_FEED_COLUMNS = frozenset({CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION})
"""The columns that a change data feed adds, which the table itself cannot have."""
_GIB = 1 << 30
_URL = "The JDBC address, such as jdbc:postgresql://host/shop; its driver must be on the classpath of Spark."
_BINLOG = "put Debezium or Canal in front and read their topic with 'source: {type: kafka, …}', or set "
_POSTGRES_NAME = 63  # NAMEDATALEN - 1
_POSTGRES_COLUMNS = 1600
_POSTGRES_PARTS = 2
_SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})
"""The columns that every table of Postgres has (postgresql.org/docs/current/ddl-system-columns.html)."""
_POSTGRES = "postgresql"
_MARIADB = "mariadb"
_SYSTEM_PREFIX = "pg_"
_SPARK_CATALOG = "spark_catalog"
_CATALOG_NAME = re.compile("[A-Za-z0-9_]+")
_CATALOG_PARTS = 2
_MAX_FOLDER = 255
"""The bytes of a name in the file systems of Linux; HDFS has the same limit for characters."""
_MAX_VERSIONS = "max-versions-per-trigger"


def _check_url(url: str) -> str | None:
    """What to write instead of an address that does not begin with ``jdbc:``; None if it does."""
    return None if url.startswith("jdbc:") else "write jdbc:postgresql://host/database"


class DeltaTables(Sink):
    """Writes tables of Delta Lake: under a folder, or of a catalog of the Spark session."""

    type: ClassVar[str] = "delta"
    rules: ClassVar[SinkRules] = SinkRules(
        "Delta Lake",
        folds_case=True,
        forbidden=" ,;{}()\n\t=",
        stores_members=True,
        stores_times=False,
        stores_keys=False,
        stores_partitions=True,
        keeps_values=True,
    )

    path: str | None = option(
        "path",
        "The folder of the tables; a table is at PATH/DATABASE/TABLE. Set either this or catalog.",
        default=None,
        kw_only=False,
    )
    catalog: str | None = option(
        "catalog", "The catalog of the Spark session, whose tables are named CATALOG.DATABASE.TABLE.", default=None
    )
    rewrite_max_bytes: int = option(
        "sink.rewrite.max-bytes",
        "The largest table, in bytes, that is rewritten where a change of a column's type cannot be made in place.",
        default=_GIB,
        check=lambda v: None if v >= 0 else "use a number from 0 on",
    )

    def find_reserved_names(self, properties: Mapping[str, str]) -> frozenset[str]:
        """Return the columns of a change data feed, if the table has one."""
        enabled = {value.lower() for key, value in properties.items() if key.lower() == CHANGE_FEED.lower()}
        return CHANGE_FEED_COLUMNS if "true" in enabled else frozenset()

    def wrong_table(self, table: TableId) -> str | None:
        """Why a table cannot be a folder, or have its name in the catalog; None if it can.

        A folder would be hidden, be longer than a file system allows, or have a character in its name that Delta or
        Hadoop's paths do not allow. Spark's own catalog takes a database and a table of letters, digits and
        underscores; what others take is not known here.
        """
        if not all(table):
            return "one of its names is empty"
        if self.path is not None:
            return next((wrong for name in table if (wrong := _wrong_folder(name)) is not None), None)
        if (self.catalog or "").lower() != _SPARK_CATALOG:
            return None
        if len(table) != _CATALOG_PARTS:
            return f"a table of {_SPARK_CATALOG} has the name of a database and its own"
        names = [name for name in table if not _CATALOG_NAME.fullmatch(name)]
        return f"{_SPARK_CATALOG} only allows ASCII letters, digits and '_', not {names[0]!r}" if names else None

    def locate(self) -> Mapping[str, Any]:
        """The folder, or the catalog."""
        return {"path": None if self.path is None else self.path.rstrip("/"), "catalog": self.catalog}

    def writer(self, concurrency: int, name: str = "") -> Any:
        """The writer of Delta tables."""
        del name
        return import_object("kdsl.ingest.run.sinks.delta:DeltaWriter")(self.valid(), concurrency)

    def locate_table(self, table: TableId) -> TableId:
        """The id, in lower case in a catalog, because most catalogs ignore letter case."""
        return table if self.catalog is None else tuple(name.lower() for name in table)

    def check(self) -> Iterable[WrongOption]:
        """Report a sink without a place for its tables, or with two."""
        if self.path is not None and self.catalog is not None:
            yield WrongOption("ingest-delta", "catalog", "path and catalog are both set", "keep one of them")
        if not self.path and not self.catalog:
            yield WrongOption(
                "ingest-delta", "path", "the tables have no place", "add path: the folder of the tables, or catalog"
            )


def _wrong_folder(name: str) -> str | None:
    """Why a folder of tables cannot have a name; None if it can."""
    if name.startswith((".", "_")) or set(name) & set("/\\:`\0"):
        return f"a folder of tables cannot be named {name!r}"
    size = len(name.encode(errors="surrogatepass"))
    return f"the name of a folder has {size} bytes, and at most {_MAX_FOLDER} fit" if size > _MAX_FOLDER else None


def wrong_database_table(table: TableId) -> str | None:
    """Why a name cannot be a table of a Postgres database; None if it can."""
    if len(table) > _POSTGRES_PARTS:
        return "a table of a database has a schema and a name"
    if table[-1].lower() == BATCHES:
        return f"kdsl has its own table {BATCHES} in each schema"
    if len(table) == _POSTGRES_PARTS and table[0].startswith(_SYSTEM_PREFIX):
        return f"Postgres reserves names of schemas that begin with {_SYSTEM_PREFIX}"
    for name in table:
        if not name or "\0" in name:
            return f"a table of a database cannot be named {name!r}"
        if len(name.encode()) > _POSTGRES_NAME:
            return f"the database would cut the name {name!r} to {_POSTGRES_NAME} bytes"
        if "." in name:
            return f"a table of a database cannot be named {name!r}, with a dot"
    return None


class JdbcTables(Sink):
    """Writes tables of a database through its JDBC driver.

    Names may have as many bytes, and tables as many columns, as Postgres allows.
    """

    type: ClassVar[str] = "jdbc"
    rules: ClassVar[SinkRules] = SinkRules(
        "the database",
        max_name_bytes=_POSTGRES_NAME,
        max_columns=_POSTGRES_COLUMNS,
        forbidden="\0",
        reserved=_SYSTEM_COLUMNS,
        stores_null_character=False,
        keeps_values=True,
    )

    url: str = option("url", _URL, secret="address", check=_check_url, kw_only=False)  # noqa: S106
    username: str | None = option("username", "The user; may be a reference to a secret.", default=None)
    password: str | None = option("password", "The password, best a reference such as ${env:NAME}.", default=None,
                                  secret=True)  # fmt: skip
    driver: str | None = option("driver", "The class of the driver, if Spark does not find it by itself.", default=None)
    lock_timeout: timedelta = option(
        "schema.change.lock-timeout",
        "How long a change of a table's columns waits for the lock on the table.",
        default=timedelta(seconds=30),
    )

    def check(self) -> Iterable[WrongOption]:
        """Report an address of a database other than Postgres; an address that names none is accepted."""
        url = self.url.reveal() if isinstance(self.url, Secret) else str(self.url)
        if product(url) not in ("", _POSTGRES):
            message = f"kdsl cannot create and change the tables of {product(url)!r}"
            fix = "use a database that speaks the protocol of Postgres: jdbc:postgresql://host/database"
            yield WrongOption("ingest-jdbc", "url", message, fix)

    def wrong_table(self, table: TableId) -> str | None:
        """Why a name cannot be a table of a database; None if it can."""
        return wrong_database_table(table)

    def locate(self) -> Mapping[str, Any]:
        """The address, without login and parameters."""
        return {"url": name_database(self.url.reveal() if isinstance(self.url, Secret) else str(self.url))}

    def writer(self, concurrency: int, name: str = "") -> Any:
        """The writer of tables of databases."""
        del name
        return import_object("kdsl.ingest.run.sinks.jdbc:JdbcWriter")(self.valid(), concurrency)

    def describe(self) -> Iterable[str]:
        """Yield the type and name, the address without a login, and the other options, without the password."""
        return describe_jdbc(self)


class DatabaseSnapshot(Source):
    """What the sources share that copy the tables of a database."""

    tables: tuple[str, ...] = option(
        "tables",
        r"The tables, separated by commas: patterns as in routes, where '\.' is any character. A pattern of one name "
        "selects tables of the default schema. A view is selected by its own name only.",
        codec=COMMAS,
    )
    excluded: tuple[str, ...] = option(
        "tables.exclude", "Patterns of tables that are not copied, although tables selects them.", default=(),
        codec=COMMAS,
    )  # fmt: skip
    fetch_size: int = option(
        "scan.snapshot.fetch.size", "How many rows the driver fetches at a time.", default=1024, check=at_least_one
    )
    driver_properties: Mapping[str, Value] = option(
        "jdbc.properties.*", "Properties of the JDBC driver, such as jdbc.properties.sslMode.", default=Properties()
    )
    tiny_boolean: bool = option(
        "treat-tinyint1-as-boolean.enabled",
        "For MySQL: whether TINYINT(1) is BOOLEAN; otherwise it is TINYINT.",
        default=True,
    )

    @property
    def copied_once(self) -> bool:
        """True: the tables are copied once."""
        return True

    def check(self) -> Iterable[WrongOption]:
        """Report patterns of tables that are not valid."""
        for key, patterns in (("tables", self.tables), ("tables.exclude", self.excluded)):
            for pattern in patterns or ():
                try:
                    RoutePattern.parse(pattern)
                except SelectorError as e:
                    yield WrongOption("ingest-selector", key, str(e), e.fix)


class JdbcSnapshot(DatabaseSnapshot):
    """Reads tables of a database once, through its JDBC driver."""

    type: ClassVar[str] = "jdbc"

    url: str = option("url", _URL, secret="address", check=_check_url, kw_only=False)  # noqa: S106
    username: str | None = option("username", "The user; may be a reference to a secret.", default=None)
    password: str | None = option("password", "The password, best a reference such as ${env:NAME}.", default=None,
                                  secret=True)  # fmt: skip
    driver: str | None = option("driver", "The class of the driver, if Spark does not find it by itself.", default=None)

    def check(self) -> Iterable[WrongOption]:
        """Report what `DatabaseSnapshot.check` reports, and an address for MariaDB's own driver."""
        yield from super().check()
        url = self.url.reveal() if isinstance(self.url, Secret) else str(self.url)
        if product(url) == _MARIADB:
            message = "Spark writes queries that MariaDB's own driver does not understand as they are meant"
            fix = "write jdbc:mysql://…: MySQL's driver, which kdsl adds to the session, reads MariaDB, too"
            yield WrongOption("ingest-jdbc", "url", message, fix)

    def reader(self) -> Any:
        """The reader of databases."""
        return import_object("kdsl.ingest.run.sources.databases:DatabaseReader")(self)

    def describe(self) -> Iterable[str]:
        """Yield the type and name, the address without a login, and the other options, without the password."""
        return describe_jdbc(self)


class MySqlSnapshot(DatabaseSnapshot):
    """Reads tables of MySQL or MariaDB once, through MySQL's JDBC driver. The binlog is not read."""

    type: ClassVar[str] = "mysql"

    hostname: str = option("hostname", "The host.")
    port: int = option("port", "The port.", default=3306, check=at_least_one)
    username: str = option("username", "The user; may be a reference to a secret.")
    password: str = option("password", "The password, best a reference such as ${env:NAME}.", secret=True)
    server_id: str | None = option(
        "server-id", "The ids of a client of the binlog; without effect, because the binlog is not read.", default=None
    )
    startup: str = option("scan.startup.mode", "Only snapshot is supported.", default="initial")

    def check(self) -> Iterable[WrongOption]:
        """Report what `DatabaseSnapshot.check` reports, and a startup mode other than ``snapshot``."""
        yield from super().check()
        if self.startup != "snapshot":
            message = f"the startup mode {self.startup!r} reads MySQL's binlog, which kdsl does not read"
            fix = f"{_BINLOG}scan.startup.mode: snapshot to copy the tables once"
            yield WrongOption("ingest-binlog", "scan.startup.mode", message, fix)

    def describe(self) -> Iterable[str]:
        """Yield the type and name, the address, and the other options, with secrets left out."""
        yield " ".join(["mysql", *(f"({self.name})" for _ in [0] if self.name)])
        yield f"  {self.hostname}:{self.port}"
        hidden = ("name", "hostname", "port", "password")
        yield from (f"  {key} = {text}" for key, text in self.write().items() if key not in hidden)

    def reader(self) -> Any:
        """The reader of the source ``jdbc``."""
        return self.valid().jdbc().reader()

    def jdbc(self) -> JdbcSnapshot:
        """The same tables as a source of the type ``jdbc``."""
        shared = {a.name: getattr(self, a.name) for a in DatabaseSnapshot.declarations()}
        url = f"jdbc:mysql://{self.hostname}:{self.port}/"
        return JdbcSnapshot(url=url, username=self.username, password=self.password, **shared)


class DeltaChanges(Source):
    """Reads a Delta table: its rows once, or the changes that its change data feed has."""

    type: ClassVar[str] = "delta"

    path: str = option("path", "The folder of the table.", kw_only=False)
    table: str | None = option("table", "The id of the table; by default the last name of its path.", default=None)
    change_feed: bool = option(
        "read.change-feed", "Whether the changes of the table are read; otherwise its rows, once.", default=False
    )
    starting_version: str | None = option(
        "starting-version",
        "The first version of the table whose changes are read: a number, or latest for those that come after the "
        "start; by default its current rows, and then their changes.",
        default=None,
        check=lambda v: None if v is None or v == "latest" or v.isdecimal() else "use a number, or latest",
    )
    max_versions: int | None = option(
        "max-versions-per-trigger",
        "The number of versions of the table, about, that a batch reads; all that there are by default.",
        default=None,
        check=at_least_one,
    )

    @property
    def copied_once(self) -> bool:
        """Whether the rows are copied, and not their changes."""
        return not self.change_feed

    @property
    def table_id(self) -> TableId:
        """The id of the table: that of the option ``table``, or else the last name of the path.

        Raises:
            ValueError: The option is not the name of a table, or the path has no last name.
        """
        if self.table is not None:
            return parse_id(self.table)
        name = str(self.path).rstrip("/").rpartition("/")[2]
        if not name:
            raise ValueError("the last name of the path is empty")
        return (name,)

    def locate(self) -> str:
        """The folder."""
        return self.path.rstrip("/")

    def list_tables(self) -> frozenset[TableId]:
        """The one table; ValueError as for `table_id`."""
        return frozenset([self.table_id])

    def reader(self) -> Any:
        """The reader of the rows, or of the changes."""
        kind = "DeltaRowReader" if self.copied_once else "DeltaChangeReader"
        return import_object(f"kdsl.ingest.run.sources.delta:{kind}")(self.valid())

    def check(self) -> Iterable[WrongOption]:
        """Report a table without a name, and, as warnings, options of the change data feed without the feed."""
        try:
            _ = self.table_id
        except ValueError as e:
            yield WrongOption("ingest-delta", "table", str(e), "name the table: table: db.orders")
        for key, value in (("starting-version", self.starting_version), (_MAX_VERSIONS, self.max_versions)):
            if value is not None and not self.change_feed:
                message = f"{key} has no effect without read.change-feed"
                yield WrongOption("ingest-delta", key, message, "add read.change-feed: true, or remove it", "warning")


def describe_jdbc(end: JdbcTables | JdbcSnapshot) -> Iterable[str]:
    """Yield the lines of an end with a JDBC address in a plan: its type, name, address without a login, and options."""
    url = end.url.reveal() if isinstance(end.url, Secret) else str(end.url)
    yield " ".join([end.type, *(f"({end.name})" for _ in [0] if end.name)])
    yield f"  {hide_login(url)}"
    yield from (f"  {key} = {text}" for key, text in end.write().items() if key not in ("name", "url", "password"))
