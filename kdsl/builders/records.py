"""How records become rows in a source of the builder (seeds 002 and 003)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import attrs
import pyarrow as pa

from kdsl.builders.calls import caller, function_name
from kdsl.builders.schemas import Columns, KafkaDeserializer, MessageSchema, columns_of, kafka_schema
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA
from kdsl.errors import Problem, listing, nearest
from kdsl.types import model as t

__all__ = ["FIELDS", "KafkaRecordDeserializationSchema", "RecordField", "RecordFunction"]

RecordField = Literal[
    "key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "leader_epoch"
]
Batches: TypeAlias = "pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch]"
RecordFunction: TypeAlias = Callable[[pa.RecordBatch], Batches]
"""Rows of raw records: it is called with one Arrow batch after the other and gives batches of the declared columns,
with any number of rows. It runs in the tasks, so that it is never called for each record."""

FIELDS = {
    "key": "__raw_key__",
    "value": "__raw_value__",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestamp-type",
    "headers": "header-list",
    "leader_epoch": "leader-epoch",
}
"""What a function over records sees, and the metadata that it is."""


@attrs.frozen
class KafkaRecordDeserializationSchema:
    """Rows of a whole Kafka record. Made by the class methods.

    Attributes:
        value: The schema of the value; None where a function makes the rows.
        metadata: Further columns beside the value, by name with their metadata keys.
        function: What makes rows of raw records.
        row: The columns that the function gives.
        fields: What the function sees of a record.
        problems: What is wrong with it.
    """

    value: MessageSchema | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    function: RecordFunction | None = None
    row: t.Row = attrs.field(factory=lambda: t.Row((), nullable=False))
    fields: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False)

    @classmethod
    def value_only(
        cls, deserializer: MessageSchema | KafkaDeserializer, *, metadata: Sequence[RecordField] = ()
    ) -> KafkaRecordDeserializationSchema:
        """Rows of the value alone.

        Args:
            deserializer: The value's schema, or the name of one of Kafka's own deserializers.
            metadata: Pieces of the record that become further columns under these names, as ``timestamp`` for the
                event time.
        """
        where = caller()
        schema = kafka_schema(deserializer, "Deserializer", where) if isinstance(deserializer, str) else deserializer
        if not isinstance(schema, MessageSchema):
            message = f"a deserializer of values is {deserializer!r}"
            problem = Problem("deserializer", message, "write SimpleStringSchema(), or a FormatSchema", where)
            return cls(problems=(problem,))
        problems = [
            Problem(
                "deserializer-metadata",
                f"a record has no {name!r}{nearest(name, FIELDS)}",
                f"name some of {listing(FIELDS)}",
                where,
            )
            for name in metadata
            if name not in FIELDS
        ]
        known = tuple((name, FIELDS[name]) for name in metadata if name in FIELDS)
        return cls(schema, known, problems=(*schema.problems, *problems))

    @classmethod
    def of(
        cls, function: RecordFunction, columns: Columns, *, fields: Sequence[RecordField] | None = None
    ) -> KafkaRecordDeserializationSchema:
        """Rows that a function makes of raw records.

        Args:
            function: Gets Arrow batches of raw records with the columns ``key`` and ``value`` (binary, null is none),
                ``topic``, ``partition``, ``offset``, ``timestamp`` (microseconds, UTC), ``timestamp_type``,
                ``headers`` (a list of structs of key and value) and ``leader_epoch``; gives batches of the declared
                columns. It travels with the query, so it must be picklable, like every function for ``mapInArrow``.
            columns: The columns that it gives, found by name.
            fields: What it needs of the records; None is everything. What is left out need not be fetched into rows.
        """
        where = caller()
        problems: list[Problem] = []
        row = columns_of(columns, where, problems)
        if not callable(function):
            problems.append(Problem("deserializer", f"the function is {function!r}", "give a function", where))
        wanted = tuple(FIELDS if fields is None else fields)
        for name in (n for n in wanted if n not in FIELDS):
            message = f"a record has no {name!r}{nearest(name, FIELDS)}"
            problems.append(Problem("deserializer-fields", message, f"name some of {listing(FIELDS)}", where))
        if not wanted:
            problems.append(Problem("deserializer-fields", "fields= is empty", "name what the function needs", where))
        return cls(
            function=function,
            row=row,
            fields=tuple(name for name in FIELDS if name in wanted),
            problems=tuple(problems),
        )

    def columns(self) -> tuple[ColumnDef, ...]:
        """The columns of the definition behind a source."""
        values = self.value.fields("value") if self.value is not None else ()
        shown = [*self.metadata, *((name, FIELDS[name]) for name in self.fields)]
        return (
            *(ColumnDef(f.name, f.type, comment=f.comment) for f in values),
            *(
                ColumnDef(name, METADATA[key].type, role="metadata", metadata_key=key, virtual=True)
                for name, key in shown
            ),
        )

    def describe(self) -> str:
        """The function, for ``explain``."""
        return "" if self.function is None else function_name(self.function)
