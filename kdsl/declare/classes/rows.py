"""The rows of a table class: real attrs classes, frozen and made by keywords.

The attrs class is made when the first row is, so that declaring stays cheap. Their way to a DataFrame and back is
`kdsl.run.frames.rows`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from kdsl.declare.classes.define import attributes
from kdsl.declare.classes.reading import Attribute
from kdsl.declare.definition import MISSING
from kdsl.errors import listing, nearest
from kdsl.formats import ROW_KIND, ROW_KINDS, RowKind

R = TypeVar("R")
FIELDS = "__attrs_attrs__"
_MADE = "__attrs_init__"
_MAKING = threading.RLock()


class LazyFields:
    """Makes the attrs class of a table when its fields are first asked for."""

    def __get__(self, instance: object, owner: type) -> Any:
        make_rows(owner)
        return vars(owner)[FIELDS]


def make_rows(cls: type) -> None:
    """Make a table class the attrs class of its rows, unless it is one already."""
    if _MADE in vars(cls):
        return
    found, _ = attributes(cls)
    these = {name: _field(a) for name, a in found.items() if writable(a)}

    def with_types(_: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
        return [f.evolve(type=found[f.name].annotation) for f in fields if f.name in these]

    with _MAKING:
        if _MADE not in vars(cls):
            attrs.define(
                cls, these=these, slots=False, frozen=True, kw_only=True, init=False, field_transformer=with_types
            )


def writable(attribute: Attribute) -> bool:
    """Whether a row is made with a column: virtual and computed ones are filled in."""
    return attribute.column.role != "computed" and not attribute.column.virtual


def _field(attribute: Attribute) -> Any:
    default = attribute.declared.default
    if default is MISSING:
        return attrs.field(alias=attribute.name)
    return attrs.field(alias=attribute.name, default=attrs.Factory(lambda: copy.deepcopy(default)))


def fill(row: Any, values: Mapping[str, Any]) -> None:
    """Set the values of a new row.

    Raises:
        TypeError: Arguments are unknown, or missing.
    """
    cls = type(row)
    make_rows(cls)
    fields = {a.name: a for a in attrs.fields(cls)}
    if values.keys() == fields.keys():
        row.__attrs_init__(**values)
        return
    wrong = [_unknown(cls, name, fields) for name in values if name not in fields]
    missing = [n for n, a in fields.items() if a.default is attrs.NOTHING and n not in values]
    if missing:
        wrong.append(f"{' and '.join(f'{n}=' for n in missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if wrong:
        raise TypeError(f"{cls.__name__}(...): {'; '.join(wrong)}")
    row.__attrs_init__(**values)


def evolve(row: R, changes: Mapping[str, Any]) -> R:
    """A copy of a row with other values.

    Raises:
        TypeError: Arguments are unknown.
    """
    cls: Any = type(row)
    made: R = cls(**{**{a.name: getattr(row, a.name) for a in attrs.fields(cls)}, **changes})
    if ROW_KIND in vars(row):
        set_row_kind(made, row_kind(row))
    return made


def row_kind(row: object) -> RowKind:
    """What a typed row of a changelog says: ``+I`` (new), ``-U`` and ``+U`` (before and after a change), ``-D`` (gone).

    A row that was made by its class, and one of a table whose rows are no changes, is new.
    """
    kind: RowKind = vars(row).get(ROW_KIND, "+I")
    return kind


def with_row_kind(row: R, kind: RowKind) -> R:
    """A copy of a typed row that says something else, for the ``rows`` of a table whose format carries changes.

    Raises:
        ValueError: There is no such row kind.
    """
    if kind not in ROW_KINDS:
        raise ValueError(f"there is no row kind {kind!r}; there are {listing(ROW_KINDS)}")
    made = copy.copy(row)
    set_row_kind(made, kind)
    return made


def set_row_kind(row: object, kind: RowKind) -> None:
    """Set what a row says; not for rows that anybody else has."""
    vars(row)[ROW_KIND] = kind


def _unknown(cls: type, name: str, fields: Mapping[str, Any]) -> str:
    found, _ = attributes(cls)
    if name not in found:
        return f"there is no column {name}={nearest(name, fields)}; the columns are {listing(fields)}"
    by = "worked out from other columns" if found[name].column.role == "computed" else "filled in by Kafka"
    return f"{name}= is {by}, so a new row is made without it"
