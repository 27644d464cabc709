"""Compares two topics, record by record: which records are lost, duplicated or reordered.

A record is identified by key and value, by one of them, by a header, or by columns of a table. Only hashes of that are
kept, 40 bytes per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs
import numpy as np
import polars as pl
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import record_reader, subscribe
from kdsl.errors import KdslError, listing, pluralize
from kdsl.plan.model import ReadPlan
from kdsl.run.offsets.stored import Range
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.header_filter import filter_records
from kdsl.run.records.registry import registry_of
from kdsl.types.arrays import Indices

Identity = Literal["record", "key", "value"]
EXAMPLES = 5
_SEEDS = (0, 0x9E3779B97F4A7C15)


class VerifyError(KdslError):
    """Two topics cannot be compared."""


@attrs.frozen
class Side:
    """One of the two topics.

    Attributes:
        plan: How it is read.
        cluster: Where it lives.
    """

    plan: ReadPlan
    cluster: Cluster


@attrs.frozen
class Example:
    """The partition and offset of a record that is lost, duplicated, foreign or reordered."""

    topic: str
    partition: int
    offset: int


@attrs.frozen
class Comparison:
    """The differences between the records of two topics.

    Attributes:
        read: Records of the first topic.
        written: Records of the second topic.
        lost: Records of the first topic that are missing in the second; equal records are counted.
        duplicated: Records that the second topic contains more often than the first.
        foreign: Records of the second topic that the first does not contain.
        reordered: Records of the second topic that come before a record that they should follow; compared are records
            with the same message key (or none) and the same partition, in both topics.
        examples: Some records of each kind, by the kind's name.
    """

    read: int
    written: int
    lost: int
    duplicated: int
    foreign: int
    reordered: int
    examples: dict[str, tuple[Example, ...]] = attrs.field(factory=dict)

    @property
    def equal(self) -> bool:
        """Whether each record arrived exactly once and in order."""
        return not (self.lost or self.duplicated or self.foreign or self.reordered)


def compare(
    source: Side, target: Side, *, by: Identity | Sequence[str] = "record", header: str | None = None
) -> Comparison:
    """Read and compare the records that two topics hold now, without those that the tables' header filters leave out.

    Args:
        source: The topic that was read.
        target: The topic that was written.
        by: What identifies a record: ``record`` (key and value), ``key``, ``value``, or columns that both tables have.
        header: Instead: the value of the header of this name.
    """
    first, second = (_read_records(side, by, header) for side in (source, target))
    return _compare_records(first, second)


def _read_records(side: Side, by: Identity | Sequence[str], header: str | None) -> pl.DataFrame:
    """Read for each record its position, and the hashes of its identity and of its key (null without one).

    ``by`` and ``header`` are those of `compare`.
    """
    columns = [] if isinstance(by, str) else list(by)
    decoder = RecordDecoder(side.plan, registry=registry_of(side.cluster, side.plan)) if columns else None
    missing = sorted(set(columns) - set(side.plan.columns.names))
    if missing:
        raise VerifyError(
            f"{side.plan.table} has no column {listing(missing)}; its columns are {listing(side.plan.columns.names)}"
        )
    needs = {"key", *(decoder.needs if decoder else ()), *(["headers"] if side.plan.headers else [])}
    needs |= {"headers"} if header is not None else {"value"} if by in ("record", "value") else set()
    frames = [_hash_records(batch, by, header, decoder, side.plan.table) for batch in _read_batches(side, needs)]
    return pl.concat(frames) if frames else _EMPTY


_EMPTY = pl.DataFrame(
    schema={
        "topic": pl.Categorical,
        "partition": pl.Int32,
        "offset": pl.Int64,
        "low": pl.UInt64,
        "high": pl.UInt64,
        "key": pl.UInt64,
    }
)


def _read_batches(side: Side, needs: set[str]) -> Iterator[pa.RecordBatch]:
    """Read all records of a side, without those that its header filter leaves out.

    If only Java's client can log in, a Spark session may be started, and errors of its jobs are passed on.
    """
    subscription = subscribe(side.plan, side.cluster)
    partitions = subscription.partitions(subscription.topics())
    first, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    name = f"kdsl-verify-{side.plan.table}"
    ranges = [Range(*p, first[p], ends[p]) for p in partitions if ends[p] > first[p]]
    with record_reader(side.cluster, side.plan, needs, name=name, large=True) as reader:
        for batch in reader.read(ranges):
            yield filter_records(batch, side.plan.headers)  # records that the table does not read are not compared


def _hash_records(
    batch: pa.RecordBatch, by: Identity | Sequence[str], header: str | None, decoder: RecordDecoder | None, table: str
) -> pl.DataFrame:
    """Hash the identities and keys of a batch of records; see `_read_records`. Errors name the table."""
    if header is not None:
        identity = pl.from_arrow(batch.select(["headers"]))
        assert isinstance(identity, pl.DataFrame)
        matching = pl.element().struct.field("value").filter(pl.element().struct.field("key") == header)
        identity = identity.select(pl.col("headers").list.eval(matching))
    elif decoder is not None:
        decoded = decoder.decode_with_records(batch)
        if decoded.messages is not None:
            _check_row_counts(table, batch, decoded.messages)
        identity = pl.DataFrame(pl.from_arrow(decoded.rows)).select(list(by))
    else:
        names = ["key", "value"] if by == "record" else [str(by)]
        identity = pl.DataFrame(pl.from_arrow(batch.select(names)))
    record = pl.DataFrame(pl.from_arrow(batch.select(["topic", "partition", "offset", "key"])))
    low, high = (identity.hash_rows(seed) for seed in _SEEDS)
    return record.select(
        pl.col("topic").cast(pl.Categorical),
        pl.col("partition").cast(pl.Int32),
        pl.col("offset").cast(pl.Int64),
        low.alias("low"),
        high.alias("high"),
        pl.when(pl.col("key").is_not_null()).then(pl.col("key").hash()).alias("key"),
    )


def _check_row_counts(table: str, batch: pa.RecordBatch, messages: Indices) -> None:
    """Check that each record of a batch has one row; ``messages`` is the index of each row's record."""
    counts = np.bincount(messages, minlength=batch.num_rows)
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        topic, partition, offset = (batch.column(name)[int(wrong[0])].as_py() for name in _POSITION)
        rows = pluralize(int(counts[wrong[0]]), "row") if counts[wrong[0]] else "no row"
        raise VerifyError(
            f"{table}: the record at topic {topic}, partition {partition}, offset {offset} has {rows}, so columns "
            "cannot identify records; compare by record, key, value or a header instead"
        )


_ID = ["low", "high"]
_POSITION = ["topic", "partition", "offset"]


def _compare_records(first: pl.DataFrame, second: pl.DataFrame) -> Comparison:
    """Count the records that the second list lacks, has more often, has alone, or has in another order than the first.

    Equal records are counted: the second of two that is missing is lost (see `Comparison`).
    """
    numbered = [
        side.sort(_POSITION).with_columns(pl.int_range(pl.len()).over(_ID).alias("nth")) for side in (first, second)
    ]
    one, other = numbered
    lost = one.join(other, on=[*_ID, "nth"], how="anti")
    left = other.join(one, on=[*_ID, "nth"], how="anti")
    duplicated = left.join(one, on=_ID, how="semi")
    foreign = left.join(one, on=_ID, how="anti")
    both = one.join(other.drop("key"), on=[*_ID, "nth"], suffix="_out")
    line = ["key", "topic", "partition", "topic_out", "partition_out"]
    moved = (
        both.sort(_POSITION)
        .filter(pl.col("offset_out") < pl.col("offset_out").cum_max().over(line))
        .select(topic="topic_out", partition="partition_out", offset="offset_out")
    )
    kinds = {"lost": lost, "duplicated": duplicated, "foreign": foreign, "reordered": moved}
    examples = {kind: _examples(rows) for kind, rows in kinds.items() if len(rows)}
    return Comparison(
        read=len(first),
        written=len(second),
        lost=len(lost),
        duplicated=len(duplicated),
        foreign=len(foreign),
        reordered=len(moved),
        examples=examples,
    )


def _examples(rows: pl.DataFrame) -> tuple[Example, ...]:
    """Return the positions (topic, partition and offset) of the first records, at most `EXAMPLES`."""
    some = rows.select(_POSITION).sort(_POSITION).head(EXAMPLES)
    return tuple(Example(str(topic), partition, offset) for topic, partition, offset in some.iter_rows())
