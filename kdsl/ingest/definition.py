"""An ingestion as it is declared: a source, transforms, routes, a sink, and the settings of the pipeline.

The options have the keys of Flink CDC's YAML. Each is declared once; the typed constructors, the reader and writer of
YAML, the messages and the reference page use the declaration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Literal

import attrs

from kdsl.client_settings.properties import Properties, Value
from kdsl.errors import Where
from kdsl.formats import MAX_COLUMNS
from kdsl.ingest.ends.end import COMMAS, Sink, Source, at_least_one
from kdsl.ingest.selectors import RouteMode
from kdsl.option_values import Codec
from kdsl.options import Options, Spelling, option
from kdsl.types.zones import is_zone

Behavior = Literal["EXCEPTION", "EVOLVE", "TRY_EVOLVE", "LENIENT", "IGNORE"]
MAX_TABLES = 10_000


_PROJECTION = Codec(lambda text: text.replace(r"\*", "*"), str, "a list as after SELECT")


class Transform(Options):
    """What is done with the rows of the tables that a pattern selects. The first transform that fits a table counts."""

    title = "a transform"

    source_table: str = option(
        "source-table",
        r"The upstream tables: names with dots between them, each a regular expression; '\.' is any character, and ',' "
        r"separates alternatives. 'db.\.*' selects the tables of db. Letter case does not count.",
        kw_only=False,
    )
    projection: str | None = option(
        "projection",
        r"The columns: names, * (in YAML '\*'), and expressions of Flink SQL with names: '\*, UPPER(country) AS c'. "
        "With *, columns that appear later pass through. By default *.",
        default=None,
        codec=_PROJECTION,
    )
    filter: str | None = option(
        "filter",
        "A condition of Flink SQL; rows that do not meet it are left out. An update whose row before meets it and "
        "whose row after does not becomes a delete, and the other way round an insert.",
        default=None,
    )
    primary_keys: tuple[str, ...] = option(
        "primary-keys", "The columns of the primary key, which become NOT NULL.", default=(), codec=COMMAS
    )
    partition_keys: tuple[str, ...] = option(
        "partition-keys", "The columns by which a Delta table is partitioned.", default=(), codec=COMMAS
    )
    table_options: str | None = option(
        "table-options", "Properties of the tables that the sink creates: 'key=value,key=value'.", default=None
    )
    table_options_delimiter: str = option(
        "table-options.delimiter", "What separates the table-options.", default=",",
        check=lambda v: None if v else "write a separator, such as ','",
    )  # fmt: skip
    converter: Literal["SOFT_DELETE"] | None = option(
        "converter-after-transform",
        "SOFT_DELETE: a delete becomes an insert of the row before it; a column with __data_event_type__ shows it.",
        default=None,
    )
    add_columns: str | None = option(
        "add-columns",
        "Further columns, as after ADD COLUMN in SQL scripts: 'name AS expression', several separated by commas, each "
        "with FIRST or AFTER column, or else as the last one. Expressions use the columns of the source.",
        default=None,
    )
    description: str | None = option("description", "A remark.", default=None)

    def table_properties(self) -> dict[str, str]:
        """The table-options by their keys; empty entries are left out, and the last of two entries with one key counts.

        Raises:
            ValueError: An entry has no ``=``, or no key before it, or the delimiter is empty.
        """
        properties = {}
        for entry in (self.table_options or "").split(self.table_options_delimiter):
            key, equals, value = (part.strip() for part in entry.partition("="))
            if entry.strip() and not (key and equals):
                raise ValueError(f"table-options has the entry {entry.strip()!r} without '='")
            if key:
                properties[key] = value
        return properties


class Route(Options):
    """Which upstream tables go into which sink table. Without a route that fits, the table keeps its name."""

    title = "a route"

    source_table: str = option(
        "source-table",
        r"The upstream tables: a regular expression over the whole id, where '.' is the dot, '\.' any character, and "
        "',' separates alternatives. Letter case counts.",
        kw_only=False,
    )
    sink_table: str = option(
        "sink-table",
        "The sink table; $1 is what the first group in round brackets of the pattern matches.",
        kw_only=False,
    )
    replace_symbol: str | None = option(
        "replace-symbol", "A symbol in sink-table that stands for the upstream table's own name.", default=None
    )
    description: str | None = option("description", "A remark.", default=None)


def _check_zone(zone: str | None) -> str | None:
    """What to write instead of an unknown time zone; None if it is known, or None."""
    return None if zone is None or is_zone(zone) else "use the name of a time zone, such as Europe/Berlin"


class Pipeline(Options):
    """The settings of the whole ingestion."""

    title = "the pipeline"

    name: str | None = option("name", "The name of the query.", default=None)
    checkpoint: str | None = option("checkpoint", "The folder of the checkpoint.", default=None)
    trigger: timedelta | None = option(
        "trigger", "The time between the starts of two batches; by default each starts when the one before ends, with "
        "another source than Kafka after a second.",
        default=None,
    )  # fmt: skip
    schema_change: Behavior = option(
        "schema.change.behavior",
        "What happens when the columns of a table change. LENIENT: columns are added and become wider, none is "
        "dropped. EVOLVE: the same, as the source shows it. TRY_EVOLVE: a change that the sink cannot make is left "
        "out; values that do not fit are NULL and counted. IGNORE: tables are created, and not changed. EXCEPTION: a "
        "change stops the ingestion.",
        default="LENIENT",
        ignore_case=True,
    )
    route_mode: RouteMode = option(
        "route-mode",
        "ALL_MATCH: a table goes into the sink tables of all routes that fit. FIRST_MATCH: of the first one.",
        default="ALL_MATCH",
        ignore_case=True,
    )
    parallelism: int | None = option(
        "parallelism", "The largest number of tasks that read.", default=None, check=at_least_one
    )
    time_zone: str | None = option(
        "local-time-zone",
        "The time zone of expressions; by default that of the Spark session.",
        default=None,
        check=_check_zone,
    )
    runtime_mode: Literal["STREAMING", "BATCH"] = option(
        "execution.runtime-mode",
        "BATCH: ends at what there is at the start.",
        default="STREAMING",
        ignore_case=True,
    )
    trimming_keys: bool = option(
        "transform.allow.trimming.pk-columns",
        "Whether a transform may leave out columns of the upstream primary key.",
        default=False,
    )
    decimal_precision: Literal["UP_TO_19", "UP_TO_38"] = option(
        "transform.decimal.precision.mode",
        "How many digits the DECIMALs of expressions in transforms have. UP_TO_19, as in Flink CDC by default: values "
        "with more digits are NULL. UP_TO_38: all digits are kept, as far as DECIMAL can.",
        default="UP_TO_38",
        ignore_case=True,
    )
    collector: Literal["logger", "kafka", "file"] | None = option(
        "dirty-data.collector.type",
        "Where records go that cannot be read: the log, a Kafka topic (dead letters), or files of JSON lines. By "
        "default they are only counted.",
        default=None,
    )
    collector_name: str | None = option("dirty-data.collector.name", "A name for messages.", default=None)
    collector_topic: str | None = option(
        "dirty-data.collector.topic", "For kafka: the topic, on the cluster of the source.", default=None
    )
    collector_path: str | None = option("dirty-data.collector.path", "For file: the folder.", default=None)
    collector_properties: Mapping[str, Value] = option(
        "dirty-data.collector.properties.*",
        "For kafka: settings of the client; with bootstrap.servers the topic is on that cluster.",
        default=Properties(),
    )
    max_columns: int = option(
        "max-columns", "The largest number of columns of a table.", default=MAX_COLUMNS, check=at_least_one
    )
    max_tables: int = option("max-tables", "The largest number of tables.", default=MAX_TABLES, check=at_least_one)
    sink_concurrency: int = option(
        "sink-concurrency", "How many tables are written at the same time.", default=4, check=at_least_one
    )
    rpc_timeout: str | None = option(
        "schema-operator.rpc-timeout", "An option of Flink CDC without effect: there is no such operator.", default=None
    )
    uid_prefix: str | None = option(
        "operator.uid.prefix", "An option of Flink CDC without effect: the checkpoint identifies the query.",
        default=None,
    )  # fmt: skip


REFUSED_IN_PIPELINE = {
    "user-defined-function": "call the function in a Python program, on the DataFrame of the sink table",
    "model": "call the model in a Python program, on the DataFrame of the sink table",
}
"""Keys of Flink CDC's pipelines that kdsl does not have, and what to do instead."""
WITHOUT_EFFECT = ("rpc_timeout", "uid_prefix")


@attrs.frozen
class Locations:
    """Where the parts of an ingestion are declared.

    Attributes:
        spelling: How options are spelled there.
        file: The file.
        lines: The line of each part, by its path (``$.source.topic``).
        places: The locations of parts that are declared in SQL, by their paths, instead of lines.
    """

    spelling: Spelling = Spelling.PYTHON
    file: str | None = None
    lines: Mapping[str, int] = attrs.field(factory=dict, repr=False)
    places: Mapping[str, Where] = attrs.field(factory=dict, repr=False)

    def where(self, path: str) -> Where:
        """The location of a part: its file and path, and the line of the nearest known part around it, if there is one.

        If that is one of ``places``, its location is returned unchanged.
        """
        known = path
        while known not in self.lines and known not in self.places and known != "$":
            known = known[: max(known.rfind("."), known.rfind("["), 1)]
        return self.places.get(known, Where(file=self.file, line=self.lines.get(known), path=path))


def _transforms(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    """Convert transforms to a tuple."""
    return tuple(transforms)


def _routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Convert routes to a tuple."""
    return tuple(routes)


@attrs.frozen
class IngestionDef:
    """An ingestion as it is declared, not checked yet.

    Attributes:
        source: Where the tables come from.
        sink: Where they go.
        transform: What is done with their rows; of several transforms that fit a table the first counts.
        route: The names of the sink tables.
        pipeline: The settings of the whole ingestion.
        locations: Where all this is declared.
    """

    source: Source
    sink: Sink
    transform: tuple[Transform, ...] = attrs.field(default=(), converter=_transforms, kw_only=True)
    route: tuple[Route, ...] = attrs.field(default=(), converter=_routes, kw_only=True)
    pipeline: Pipeline = attrs.field(factory=Pipeline, kw_only=True)
    locations: Locations = attrs.field(factory=Locations, eq=False, repr=False, kw_only=True)
