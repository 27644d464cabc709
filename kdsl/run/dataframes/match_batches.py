"""Matches Arrow batches with the columns of a plan, where Spark gives the writer a schema and not a DataFrame.

It accepts what `kdsl.run.dataframes.match_columns` accepts, except for what only Spark can compute: defaults other than
NULL, and instants from dates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql import types as s

from kdsl.errors import Problem, Where
from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.plan.model import WritePlan
from kdsl.run.dataframes.match_columns import choose_columns, take_instant, type_problems, write_upserts_only
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema, cast_array
from kdsl.types.spark import spark_type

_NULL = ("NULL", "CAST(NULL AS ")


def match_schema(schema: s.StructType, plan: WritePlan) -> tuple[BatchMatch, WritePlan, list[Problem]]:
    """Match the columns of a schema with those of a plan, by name in any letter case.

    Args:
        schema: The columns of the rows that will be written.
        plan: The write plan.

    Returns:
        Where each column of the plan is in the batches, or that its default is NULL; the plan that writes them, one of
        upserts only if a changelog's rows have no row kind; and all problems, such as types that are not cast safely,
        with which the other two are of no use.
    """
    plan, _ = take_instant(plan)  # how other types are cast depends on the time zone of a session
    chosen, problems = choose_columns(schema, plan, ignore_case=True)
    if plan.upserts is not None and plan.changelog and ROW_KIND not in chosen:
        plan = write_upserts_only(plan)
    sources: list[int | None] = []
    for field in plan.columns.fields:
        source = chosen.get(field.name)
        sources.append(None if source is None else next(i for i, f in enumerate(schema.fields) if f is source))
        here = Where(table=plan.table, column=field.name)
        problems += [p.at(here) for p in _problems(field, source, plan)]
    return BatchMatch(tuple(sources)), plan, problems


def _problems(field: t.Field, source: s.StructField | None, plan: WritePlan) -> Iterator[Problem]:
    """Yield the problems of one column of the plan, for which the schema has a field, or none.

    These are a type that cannot be cast safely, a date for a TIMESTAMP_LTZ, and, without a field, a default
    other than NULL. `choose_columns` reports a column with neither.
    """
    default = plan.defaults.get(field.name, "NULL")
    if source is None:
        if field.name != ROW_KIND and not default.startswith(_NULL):
            message = f"the DataFrame has no column {field.name!r}, and only Table.write fills in its default {default}"
            yield Problem("write-column-default", message, f"add it, as {default} AS {field.name}")
    elif isinstance(source.dataType, s.DateType) and isinstance(spark_type(field.type), s.TimestampType):
        message = f"the DataFrame's column {source.name!r} is a date, and the table writes {field.type.spelling}"
        yield Problem("write-column-type", message, f"write CAST({source.name} AS TIMESTAMP)")
    else:
        yield from type_problems(source, field, ignore_case=True)


@attrs.frozen
class BatchMatch:
    """How batches become those of a plan.

    Attributes:
        sources: For each column of the plan the index of the batch's column; None for its default: ``+I`` for the row
            kind, NULL for others.
    """

    sources: tuple[int | None, ...]

    def to_text(self) -> str:
        """Return the value of an option that carries the match to tasks."""
        return json.dumps(self.sources)

    @classmethod
    def from_text(cls, text: str) -> BatchMatch:
        """Read the match back from `to_text`."""
        return cls(tuple(json.loads(text)))

    def apply(self, batch: pa.RecordBatch, plan: WritePlan) -> pa.RecordBatch:
        """Return a batch with the columns of the plan; values are cast to their types, missing columns have defaults.

        NOT NULL is not checked. Errors of values that do not fit are those of `cast_array`.
        """
        schema = arrow_schema(plan.columns)
        arrays = []
        for field, index in zip(schema, self.sources, strict=True):
            if index is not None:
                arrays.append(cast_array(batch.column(index), field.type))
            elif field.name == ROW_KIND and plan.changelog:
                arrays.append(pa.repeat(ROW_KINDS[0], batch.num_rows))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
