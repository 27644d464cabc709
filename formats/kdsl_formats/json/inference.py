"""The options that say how columns are inferred from JSON, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kdsl.options import Options, option
from kdsl.types import model as t
from kdsl.types.parse import TypeSyntaxError, parse_type

MAX_ID_FIELDS = 3


@attrs.frozen
class InferenceRules:
    """How columns are inferred.

    Attributes:
        as_strings: Whether every value but an object or array gives a STRING column.
        flatten: Whether the members of objects are columns of their own, ``a.b``.
        fixed: The types of columns that are not inferred, by name.
        id_fields: The members whose values are the table id.
        times: Whether strings may be dates and times; otherwise they are all STRING.
        max_columns: How many columns a table may have.
    """

    as_strings: bool = False
    flatten: bool = False
    fixed: Mapping[str, t.DataType] = attrs.field(factory=dict)
    id_fields: tuple[str, ...] = ()
    times: bool = True
    max_columns: int = 2000


def parse_fixed_types(text: str | None) -> dict[str, t.DataType]:
    """Parse types of columns by name, as in ``id BIGINT, name VARCHAR(10)``; empty for None and a blank string."""
    if not text or not text.strip():
        return {}
    try:
        row = parse_type(f"ROW<{text}\n>")  # on a line of its own, because the text may end with a comment
    except TypeSyntaxError as e:
        raise ValueError(e.reason) from None
    assert isinstance(row, t.Row)
    if len(set(row.names)) < len(row.names):
        raise ValueError("it names a column twice")
    return {f.name: f.type for f in row.fields}


def split_id_fields(text: str | None) -> tuple[str, ...]:
    """The names of members, separated by commas and without blanks around them; empty for None and an empty string."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _check_fixed_types(text: str | None) -> str | None:
    """Return what is wrong with the option ``infer-schema.fixed-types``, and the fix; None if it is valid."""
    try:
        parse_fixed_types(text)
    except ValueError as e:
        return f"{e}; write a list such as 'id BIGINT, `a.b` STRING', with back-ticks around names with dots or blanks"
    return None


def _check_id_fields(text: str | None) -> str | None:
    """Return how to correct the option ``decode.parser-table-id.fields``; None if it is valid or not set."""
    names = split_id_fields(text)
    if text is not None and (not all(names) or not 1 <= len(names) <= MAX_ID_FIELDS):
        return f"name one to {MAX_ID_FIELDS} members, separated by commas, such as 'app,event'"
    return None


class InferenceOptions(Options):
    """How a format infers columns."""

    inferred_columns: bool = option(
        "decode.inferred-columns.enabled",
        "Read: whether the columns were inferred from messages. Timestamps are then read in either form, dates also as "
        "timestamps at midnight, instants without a zone as UTC, and numbers into STRING columns as they are spelled; "
        "something after the JSON document, or half of a surrogate pair in a string, is an error.",
        default=False,
        side="read",
    )
    infer_primitive_as_string: bool = option(
        "infer-schema.primitive-as-string",
        "Read: whether inferred columns of numbers, booleans and strings are all STRING, with the values as they are "
        "spelled.",
        default=False,
        side="read",
    )
    infer_fixed_types: str | None = option(
        "infer-schema.fixed-types",
        "Read: types of columns that are not inferred, such as 'id BIGINT, name VARCHAR(10)', by their names in the "
        "messages. A message with a value that does not fit its type is an error.",
        default=None,
        check=_check_fixed_types,
        side="read",
    )

    @property
    def fixed_types(self) -> Mapping[str, t.DataType]:
        """The types of `infer_fixed_types`; ValueError if it is not a list of types, which `problems` reports."""
        return parse_fixed_types(self.infer_fixed_types)


class RowInferenceOptions(InferenceOptions):
    """How a format whose messages are the rows themselves infers columns and table ids."""

    infer_flatten: bool = option(
        "infer-schema.flatten-nested-columns.enable",
        "Read: whether the members of objects are inferred as columns of their own, whose names are joined by dots "
        "(a.b.c); otherwise objects are STRING columns with their JSON. Arrays are STRING columns either way.",
        default=False,
        side="read",
    )
    table_id_fields: str | None = option(
        "decode.parser-table-id.fields",
        "Read: one to three members, separated by commas, whose values are the names of the table that a message "
        "belongs to. Without it, the topic is the table.",
        default=None,
        check=_check_id_fields,
        side="read",
    )
