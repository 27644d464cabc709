"""How records become rows in a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import attrs
import pyarrow as pa

from kdsl.datastream.calls import caller_location, function_name
from kdsl.datastream.event_time import RECORD_TIME
from kdsl.datastream.schemas import Columns, KafkaDeserializer, MessageSchema, kafka_schema, parse_columns
from kdsl.declare.definition import ColumnDef
from kdsl.declare.metadata import METADATA, RECORD_FIELDS
from kdsl.errors import Problem, listing, nearest
from kdsl.types import model as t

__all__ = ["KafkaRecordDeserializationSchema", "RecordField", "RecordFunction"]

RecordField = Literal[
    "key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "leader_epoch"
]
Batches: TypeAlias = "pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch]"
RecordFunction: TypeAlias = Callable[[pa.RecordBatch], Batches]
"""A function that makes rows from raw records: it gets one Arrow batch at a time, and returns batches of the declared
columns, with any number of rows. It runs in the tasks, and is never called for single records."""


@attrs.frozen
class KafkaRecordDeserializationSchema:
    """How a Kafka record becomes rows. Use the class methods to make one.

    Attributes:
        value: The schema of the value; None if a function makes the rows.
        metadata: Metadata columns: their names with their metadata keys.
        function: The function that makes rows from raw records.
        row: The columns that the function returns.
        fields: The columns that the function gets.
        problems: Mistakes in the arguments.
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
        """Describe rows that come from the value alone.

        Mistakes are reported when the source is built.

        Args:
            deserializer: The value's schema, or the name of one of Kafka's own deserializers.
            metadata: Parts of the record that become metadata columns with these names, such as ``timestamp`` for the
                event time.
        """
        where = caller_location()
        schema = kafka_schema(deserializer, "Deserializer", where) if isinstance(deserializer, str) else deserializer
        if not isinstance(schema, MessageSchema):
            message = f"value_only() expects a schema or the name of a deserializer, not {deserializer!r}"
            problem = Problem("deserializer", message, "write SimpleStringSchema(), or a FormatSchema", where)
            return cls(problems=(problem,))
        problems = [
            Problem(
                "deserializer-metadata",
                f"a record has no {name!r}{nearest(name, RECORD_FIELDS)}",
                f"name some of {listing(RECORD_FIELDS)}",
                where,
            )
            for name in metadata
            if name not in RECORD_FIELDS
        ]
        known = tuple((name, RECORD_FIELDS[name]) for name in metadata if name in RECORD_FIELDS)
        return cls(schema, known, problems=(*schema.problems, *problems))

    @classmethod
    def of(
        cls, function: RecordFunction, columns: Columns, *, fields: Sequence[RecordField] | None = None
    ) -> KafkaRecordDeserializationSchema:
        """Describe rows that a function makes from raw records.

        Mistakes are reported when the source is built.

        Args:
            function: Gets Arrow batches of raw records with the columns ``key`` and ``value`` (binary; NULL if the
                record has none), ``topic``, ``partition``, ``offset``, ``timestamp`` (microseconds, UTC),
                ``timestamp_type``, ``headers`` (a list of structs of key and value) and ``leader_epoch``; returns
                batches of the declared columns. It must be picklable, like every function for ``mapInArrow``.
            columns: The columns that it returns, matched by name.
            fields: The columns that it needs; None means all. The others are not fetched.
        """
        where = caller_location()
        problems: list[Problem] = []
        row = parse_columns(columns, where, problems)
        if not callable(function):
            problems.append(Problem("deserializer", f"{function!r} is not a function", "pass a function", where))
        selected = tuple(RECORD_FIELDS if fields is None else fields)
        for name in (n for n in selected if n not in RECORD_FIELDS):
            message = f"a record has no {name!r}{nearest(name, RECORD_FIELDS)}"
            problems.append(Problem("deserializer-fields", message, f"name some of {listing(RECORD_FIELDS)}", where))
        if not selected:
            fix = "name the fields of a record that the function needs, as fields=['value']"
            problems.append(Problem("deserializer-fields", "fields= is empty", fix, where))
        return cls(
            function=function,
            row=row,
            fields=tuple(name for name in RECORD_FIELDS if name in selected),
            problems=tuple(problems),
        )

    def with_event_time(self, column: str) -> KafkaRecordDeserializationSchema:
        """Return this schema, with the record's timestamp as the metadata column ``timestamp`` if that is event time.

        It is returned unchanged if the event time is another column, if a function makes the rows, or if there is a
        column ``timestamp`` already.

        Args:
            column: The column of event time.
        """
        if column != RECORD_TIME or self.value is None:
            return self
        names = {f.name for f in self.value.fields("value")} | {name for name, _ in self.metadata}
        return (
            self if column in names else attrs.evolve(self, metadata=(*self.metadata, (column, RECORD_FIELDS[column])))
        )

    def columns(self) -> tuple[ColumnDef, ...]:
        """The columns of the source's table definition: those of the value, then the virtual metadata columns.

        With a function for whole records these are the fields of records that it gets, not its own columns. Nothing is
        checked.
        """
        values = self.value.fields("value") if self.value is not None else ()
        metadata = [*self.metadata, *((name, RECORD_FIELDS[name]) for name in self.fields)]
        return (
            *(ColumnDef(f.name, f.type, comment=f.comment) for f in values),
            *(
                ColumnDef(name, METADATA[key].type, role="metadata", metadata_key=key, virtual=True)
                for name, key in metadata
            ),
        )

    def describe(self) -> str:
        """The function's name, for ``explain``; empty without a function."""
        return "" if self.function is None else function_name(self.function)
