"""Proves that all records of a key are in one partition, where a task then has all that the key's changes depend on.

A key belongs to one partition: the one that the producers' partitioner chooses for the bytes of the key. These are
computed from the key's columns: the table's key format writes them, in the form that the writers' messages have
(`kdsl.formats.Format.find_form`): with the id of their schema in a registry, or with the schema itself. So equal keys
belong to the same partition, whatever the bytes of the single record are, and none can be in two. A record elsewhere
comes from a producer that chooses partitions or encodes keys in another way, or has another schema; or the topic had
another number of partitions then.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.errors import KdslError
from kdsl.formats import Encoder, Use
from kdsl.plan.model import KeyPartitioner, ReadPlan
from kdsl.run.upsert.partitioners import TITLES, choose_partitions
from kdsl.types.arrays import Mask
from kdsl.types.arrow import arrow_field


class KeyPlacement:
    """Computes where keys belong.

    Args:
        plan: What is read; its message key has the columns of the primary key, or some of them.
        partitions: How many partitions the topic has.
        partitioner: The partitioner of the producers.
        key_form: The form of their keys (`kdsl.formats.Format.find_form`); empty for keys as the key format alone
            writes them.
        registry: The registry of the schemas that keys name.

    Attributes:
        reason: Why a key does not belong to the partition that it is in, for an error.
    """

    def __init__(
        self,
        plan: ReadPlan,
        partitions: int,
        partitioner: KeyPartitioner = "murmur2",
        key_form: str = "",
        registry: Registry | None = None,
    ) -> None:
        assert plan.key is not None
        self._columns = plan.key.columns
        self._partitions = partitions
        self._partitioner: KeyPartitioner = partitioner
        self._fields = [arrow_field(f.name, f.type) for f in plan.key.row.fields]
        self._encoder = key_encoder(plan, key_form, registry) if partitions > 1 else None
        of_schema = ", with the schema that they had when the query first started" if key_form else ""
        self.reason = (
            f"its key does not belong to this partition by the partitioner of {TITLES[partitioner]} and the bytes that "
            f"the table's key format writes{of_schema}: its producer chooses partitions or writes keys in another way, "
            "or the topic had another number of partitions then"
        )

    def belong(self, rows: pa.RecordBatch, partition: int) -> Mask:
        """Return which rows have a key that belongs to a partition; one that cannot be encoded belongs nowhere.

        If the topic has one partition, all rows belong to it, unchecked. Errors are those of the key's encoder.
        """
        if self._encoder is None or not rows.num_rows:
            return np.ones(rows.num_rows, dtype=bool)
        columns = [rows.column(name) for name in self._columns]
        encoded = self._encoder.encode(pa.StructArray.from_arrays(columns, fields=self._fields), None)
        result: Mask = choose_partitions(encoded.messages, self._partitions, self._partitioner) == partition
        result[[bad.index for bad in encoded.bad]] = False
        return result


def key_encoder(plan: ReadPlan, key_form: str, registry: Registry | None) -> Encoder:
    """Return the encoder of a table's keys in a form; a format with a registry needs one, as nothing is registered."""
    assert plan.key is not None
    chosen = plan.key.format
    if chosen.needs_registry and not key_form:
        raise KdslError(
            f"{plan.table}: a key in the format {chosen.identifier!r} contains the id of its schema, and it is not "
            "known which one the keys of the topic have; write changelog_state='key' (in SQL and YAML "
            "'scan.changelog.state' = 'key')"
        )
    return chosen.form_encoder(plan.key.row, key_form, Use(side="key", topics=plan.topics.names, registry=registry))
