"""The rows of a table class: a frozen attrs class with keyword arguments.

The attrs class is created with the first row, so that declaring stays cheap. `kdsl.run.dataframes.rows` converts rows
to a DataFrame and back.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any, TypeVar

import attrs

from kdsl.declare.definition import MISSING
from kdsl.declare.dsl.column_reader import ClassColumn
from kdsl.declare.dsl.table_def import read_columns
from kdsl.errors import listing, nearest
from kdsl.formats import ROW_KIND, ROW_KINDS, RowKind

R = TypeVar("R")
FIELDS = "__attrs_attrs__"
_CONSTRUCTOR = "__attrs_init__"
_LOCK = threading.RLock()


class LazyFields:
    """Creates the attrs class of a table when its fields are first used."""

    def __get__(self, instance: object, owner: type) -> Any:
        """Return the attrs fields of a table class, which becomes the attrs class of its rows at the first call."""
        make_rows(owner)
        return vars(owner)[FIELDS]


def make_rows(cls: type) -> None:
    """Turn a table class into the frozen attrs class of its rows, in place, unless it is one already.

    It gets ``__attrs_init__``, and keeps its ``__init__``. Problems of the columns are ignored here.
    """
    if _CONSTRUCTOR in vars(cls):
        return
    columns, _ = read_columns(cls)
    these = {name: _make_field(c) for name, c in columns.items() if is_constructor_argument(c)}

    def with_types(_: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
        return [f.evolve(type=columns[f.name].annotation) for f in fields if f.name in these]

    with _LOCK:
        if _CONSTRUCTOR not in vars(cls):
            attrs.define(
                cls, these=these, slots=False, frozen=True, kw_only=True, init=False, field_transformer=with_types
            )


def is_constructor_argument(column: ClassColumn) -> bool:
    """Whether a row's constructor takes the column: virtual and computed ones are filled in later."""
    return column.column.role != "computed" and not column.column.virtual


def _make_field(column: ClassColumn) -> Any:
    """Create the attrs field of a column; its default is copied for each row, without one a value is required.

    The constructor's argument has the name of the attribute, also if that begins with an underscore.
    """
    default = column.descriptor.default
    if default is MISSING:
        return attrs.field(alias=column.name)
    return attrs.field(alias=column.name, default=attrs.Factory(lambda: copy.deepcopy(default)))


def fill(row: Any, values: Mapping[str, Any]) -> None:
    """Set the values of a new row in place, and make its class the attrs class of its rows if it is not one yet.

    Raises:
        TypeError: Arguments are unknown, or missing.
    """
    cls = type(row)
    make_rows(cls)
    fields = {a.name: a for a in attrs.fields(cls)}
    if values.keys() == fields.keys():
        row.__attrs_init__(**values)
        return
    errors = [_explain_unknown(cls, name, fields) for name in values if name not in fields]
    missing = [n for n, a in fields.items() if a.default is attrs.NOTHING and n not in values]
    if missing:
        errors.append(f"{' and '.join(f'{n}=' for n in missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if errors:
        raise TypeError(f"{cls.__name__}(...): {'; '.join(errors)}")
    row.__attrs_init__(**values)


def make_row_signature(cls: type) -> Signature:
    """Make the signature of the constructor of rows, which takes columns by name."""
    columns, _ = read_columns(cls)
    parameters = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if column.descriptor.default is MISSING else column.descriptor.default,
            annotation=column.annotation,
        )
        for name, column in columns.items()
        if is_constructor_argument(column) and name.isidentifier()
    ]
    return Signature(parameters)


def evolve(row: R, changes: Mapping[str, Any]) -> R:
    """Return a copy of a row with other values, which are not checked, and the same row kind.

    Raises:
        TypeError: Arguments are unknown.
    """
    cls: Any = type(row)
    copied: R = cls(**{**{a.name: getattr(row, a.name) for a in attrs.fields(cls)}, **changes})
    if ROW_KIND in vars(row):
        set_row_kind(copied, row_kind(row))
    return copied


def row_kind(row: object) -> RowKind:
    """The row kind of a typed row: ``+I`` insert, ``-U`` and ``+U`` the row before and after an update, ``-D`` delete.

    A row that its class constructed, and a row of a table without changes, is ``+I``.
    """
    kind: RowKind = vars(row).get(ROW_KIND, "+I")
    return kind


def with_row_kind(row: R, kind: RowKind) -> R:
    """Return a copy of a typed row with another row kind, for the ``rows`` of a table whose format carries changes.

    Raises:
        ValueError: The row kind does not exist.
    """
    if kind not in ROW_KINDS:
        raise ValueError(f"there is no row kind {kind!r}; the row kinds are {listing(ROW_KINDS)}")
    copied = copy.copy(row)
    set_row_kind(copied, kind)
    return copied


def set_row_kind(row: object, kind: RowKind) -> None:
    """Set the row kind of a row in place; only for rows that nothing else refers to."""
    vars(row)[ROW_KIND] = kind


def _explain_unknown(cls: type, name: str, fields: Mapping[str, Any]) -> str:
    """Explain, in a message, why the constructor does not take a name: it is unknown, computed or filled in."""
    columns, _ = read_columns(cls)
    if name not in columns:
        return f"there is no column {name}={nearest(name, fields)}; the columns are {listing(fields)}"
    source = "computed from other columns" if columns[name].column.role == "computed" else "filled in by Kafka"
    return f"{name}= is {source}, so the constructor does not take it"
