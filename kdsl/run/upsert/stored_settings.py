"""How the rows of an upsert table are distributed in its state, and reading that from a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import orjson
import pyarrow as pa

from kdsl.plan.model import ReadPlan
from kdsl.run.upsert.chunks import SETTINGS
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class StateSettings:
    """How the rows of a state are distributed, which must be the same at each start.

    Attributes:
        buckets: The number of buckets.
        key: The columns of the key with their types (`describe_key`).
    """

    buckets: int
    key: str

    def to_bytes(self) -> bytes:
        """Write it as the state stores it."""
        return orjson.dumps({"buckets": self.buckets, "key": self.key})

    @classmethod
    def from_bytes(cls, stored: bytes) -> StateSettings:
        """Read what `to_bytes` wrote."""
        document = orjson.loads(stored)
        return cls(document["buckets"], document["key"])


def describe_key(schema: pa.Schema, keys: Sequence[str]) -> str:
    """Write the columns of a key with their types."""
    return ", ".join(f"{name} {schema.field(name).type}" for name in keys)


def derive_settings(plan: ReadPlan) -> StateSettings | None:
    """The settings of a read that stores rows; None if it stores none.

    A read whose rows are in buckets stores them. One that keeps its rows by topic partition stores the key alone, with
    each version of a state (`kdsl.run.upsert.partition_state.parse_key`).

    Args:
        plan: The read.
    """
    upserts = plan.upserts
    if upserts is None or not upserts.images:
        return None
    schema = arrow_schema(t.Row(plan.columns.fields[1:], nullable=False))
    return StateSettings(upserts.buckets, describe_key(schema, upserts.keys))


def read_stored_settings(spark: SparkSession, checkpoint: str) -> StateSettings | None:
    """Read the settings in the state of a checkpoint; None without state, or if several operators have one.

    Spark's errors are raised unchanged.

    Args:
        spark: A classic session.
        checkpoint: The folder of the checkpoint.
    """
    operators = spark.read.format("state-metadata").load(checkpoint).where("operatorName LIKE 'transformWithState%'")
    ids = {row["operatorId"] for row in operators.select("operatorId").collect()}
    if len(ids) != 1:
        return None
    reader = spark.read.format("statestore").option("operatorId", str(ids.pop())).option("stateVarName", "rows")
    stored = reader.load(checkpoint).where(f"key.bucket = {SETTINGS}").select("value.rows").collect()
    return StateSettings.from_bytes(bytes(stored[0][0])) if stored else None
