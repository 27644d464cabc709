"""How the numbers of a task get to the driver: on rows.

A Python data source has no metrics of its own, and executors can reach the driver by rows alone. So the rows of a
stream have one column more, a text that is null but on the first row of each Arrow batch. Spark's ``observe`` gathers
it, the column is dropped right behind, and the numbers stand in the progress of the query. A task that has something to
tell and no row gives one row that a filter takes out again.

A task may run more than once (it failed, or ``foreachBatch`` uses the rows twice): a report names its task and its run,
and of each task one run counts.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import orjson
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN = "__kdsl_metrics"
OPTION = "metrics"
"""The option of a source that has its rows carry the column."""
OBSERVED = "metrics"
SWITCH = "spark.kdsl.metrics"
"""The session's setting that turns the metrics of sources off, with ``false``."""
_PREFIX = "kdsl."
_ROWLESS = "rowless"
_nth = itertools.count(1)


def new_name(read: str) -> str:
    """A name for the observation of a read, its own among all reads of this process.

    Args:
        read: The id of the read.
    """
    return f"{_PREFIX}{read}.{next(_nth)}"


def read_of(name: str) -> str | None:
    """The id of the read that an observation belongs to; None where it is not kdsl's."""
    return name.removeprefix(_PREFIX).rpartition(".")[0] if name.startswith(_PREFIX) else None


def observed(df: DataFrame, name: str) -> DataFrame:
    """The rows without the column, whose reports Spark's progress tells under a name.

    Args:
        df: The rows of a source, with the column.
        name: The observation's name, unique in the query.
    """
    from pyspark.sql import functions as sf

    def total(field: str, how: str) -> str:
        found = f"cast(get_json_object(x, '$.{field}') as bigint)"
        if how == "sum":
            return f"aggregate(reports, 0L, (s, x) -> s + coalesce({found}, 0L))"
        return f"array_max(transform(reports, x -> {found}))"

    fields = ", ".join(f"'{name}', {total(field, how)}" for name, field, how in _SHOWN)
    # The lambda gives the list a name: each other mention would gather it anew, row by row.
    gathered = f"transform(array(collect_list({COLUMN})), reports -> named_struct({fields}, 'reports', reports))[0]"
    rows = df.observe(name, sf.expr(gathered).alias(OBSERVED))
    return rows.where(f"{COLUMN} is null or {COLUMN} not like '%\"{_ROWLESS}\"%'").drop(COLUMN)


_SHOWN = (
    ("numRecordsIn", "records", "sum"),
    ("numBytesIn", "bytes", "sum"),
    ("numRecordsFiltered", "filtered", "sum"),
    ("currentFetchEventTimeLag", "fetch_lag", "max"),
    ("currentEmitEventTimeLag", "emit_lag", "max"),
)


class Reporter:
    """Counts what one task reads, and puts it on its rows.

    Args:
        task: What the task reads, the same in every run of it.
        schema: The columns of the rows.
    """

    def __init__(self, task: str, schema: t.Row) -> None:
        self._task, self._run = task, secrets.token_hex(4)
        self._schema = schema
        self._records = self._bytes = self._filtered = 0
        self._event: int | None = None
        self._fetched = 0
        self._client: Mapping[str, Mapping[str, float]] = {}
        self._new = False

    def read(self, records: int, size: int, event: int | None, fetched: float, *, filtered: int = 0) -> None:
        """Count some records.

        Args:
            records: How many.
            size: The bytes of their keys and values.
            event: The timestamp of the last one, in milliseconds; None where it has none.
            fetched: When it was fetched, in seconds since 1970.
            filtered: How many of them the header filter left out.
        """
        self._records += records
        self._bytes += size
        self._filtered += filtered
        self._new = True
        if event is not None:
            self._event, self._fetched = event, int(fetched * 1000)

    def client(self, id_: str, metrics: Mapping[str, float] | None) -> None:
        """Tell what librdkafka said of the client since the last time, if it did."""
        if metrics:
            self._client, self._new = {id_: metrics}, True

    def on(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with what was counted since the last ones."""
        nulls = pa.nulls(rows.num_rows - 1, pa.string())
        column = pa.concat_arrays([pa.array([self._report()], pa.string()), nulls])
        return pa.RecordBatch.from_arrays([*rows.columns, column], schema=with_column(rows.schema))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What no row could carry, as a row that the driver takes out; nothing where nothing is left."""
        if not self._new:
            return
        schema = arrow_schema(self._schema)
        filled = [pa.array([_some(field.type)], schema.field(field.name).type) for field in self._schema.fields]
        report = pa.array([self._report({_ROWLESS: True})], pa.string())
        yield pa.RecordBatch.from_arrays([*filled, report], schema=with_column(schema))

    def _report(self, more: Mapping[str, Any] | None = None) -> str:
        said: dict[str, Any] = {"task": self._task, "run": self._run, "records": self._records, "bytes": self._bytes}
        if self._filtered:
            said["filtered"] = self._filtered
        if self._event is not None:
            said["event"] = self._event
            said["fetch_lag"] = self._fetched - self._event
            said["emit_lag"] = int(time.time() * 1000) - self._event
        if self._client:
            said["client"] = self._client
        self._records = self._bytes = self._filtered = 0
        self._client, self._new = {}, False
        return orjson.dumps({**said, **(more or {})}).decode()


def with_column(schema: pa.Schema) -> pa.Schema:
    """A schema of rows with the column of reports."""
    return schema.append(pa.field(COLUMN, pa.string()))


def _some(type_: t.DataType) -> Any:
    """A value of a type: NULL where that may be."""
    import datetime as dt
    from decimal import Decimal

    if type_.nullable:
        return None
    match type_:
        case t.Row():
            return {field.name: _some(field.type) for field in type_.fields}
        case t.Array() | t.Map() | t.Multiset():
            return []
        case t.Boolean():
            return False
        case t.Char() | t.VarChar():
            return ""
        case t.Binary() | t.VarBinary():
            return b""
        case t.Decimal():
            return Decimal(0)
        case t.Date():
            return dt.date(1970, 1, 1)
        case t.Time():
            return dt.time()
        case t.Timestamp():
            return dt.datetime(1970, 1, 1)
        case t.TimestampLtz():
            return dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        case _:
            return 0


@attrs.frozen
class SourceCounts:
    """What the tasks of one batch have read.

    Attributes:
        records: The records.
        bytes: The bytes of their keys and values.
        filtered: The records that the header filter left out.
        event: The timestamp of the last record, in milliseconds, of the task that is furthest behind; None where no
            record has one.
        fetch_lag: From the timestamp of the last record to its fetch, in milliseconds.
        emit_lag: The same to the row.
        client: What librdkafka told of clients.
    """

    records: int = 0
    bytes: int = 0
    filtered: int = 0
    event: int | None = None
    fetch_lag: int | None = None
    emit_lag: int | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


def read_reports(reports: Iterable[str]) -> SourceCounts:
    """What some reports say together; of each task the run that read most counts."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    client: dict[str, Mapping[str, float]] = {}
    for text in reports:
        said = orjson.loads(text)
        runs.setdefault(said["task"], {}).setdefault(said["run"], []).append(said)
        client |= said.get("client", {})
    chosen = [max(of.values(), key=lambda run: sum(one["records"] for one in run)) for of in runs.values()]
    every = [one for run in chosen for one in run]

    def total(name: str) -> int:
        return sum(one.get(name, 0) for one in every)

    lasts = [max((one for one in run if "event" in one), key=lambda o: o["event"], default=None) for run in chosen]
    timed = [one for one in lasts if one is not None]
    latest = max(timed, key=lambda one: one["event"] + one["emit_lag"], default=None)
    return SourceCounts(
        total("records"),
        total("bytes"),
        total("filtered"),
        min((one["event"] for one in timed), default=None),
        None if latest is None else latest["fetch_lag"],
        None if latest is None else latest["emit_lag"],
        client,
    )
