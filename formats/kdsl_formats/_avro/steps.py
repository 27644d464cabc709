"""The steps that read bodies of Avro, in the order of the bytes, and why some of them fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.types import model as t
from kdsl_formats._avro.connect import Conversion
from kdsl_formats._avro.model import Type

UNITS = {"millis": 1_000_000, "micros": 1000, "nanos": 1}  # in nanoseconds


class Step:
    """What to do with the next bytes of a body."""


@attrs.frozen(eq=False)
class Fail(Step):
    """The types do not match: a record that reaches this step is bad.

    Attributes:
        message: Why.
        path: The path of the column below this step, as ``a.b``; empty for the step's own column.
    """

    message: str
    path: str = ""


@attrs.frozen(eq=False)
class Null(Step):
    """The type null, which takes no bytes."""


@attrs.frozen(eq=False)
class Skip(Step):
    """A value that no column reads."""

    type: Type


@attrs.frozen(eq=False)
class Scalar(Step):
    """A value without parts.

    Attributes:
        wire: The Avro type on the wire.
        target: The Avro type it is promoted to.
        column: The column's type.
        unit: For a time or timestamp, the nanoseconds per unit of the number.
        scale: For a decimal, its digits after the decimal point.
        size: The length of a fixed in bytes.
    """

    wire: str
    target: str
    column: t.DataType
    unit: int = 0
    scale: int = 0
    size: int = 0


@attrs.frozen(eq=False)
class Converted(Step):
    """A value that Kafka Connect wrote."""

    inner: Step
    conversion: Conversion


@attrs.frozen(eq=False)
class Symbol(Step):
    """A symbol of an enum, by its index; None for a symbol that the table's schema does not have."""

    symbols: tuple[str | None, ...]
    name: str


@attrs.frozen(eq=False)
class Items(Step):
    """An array, and the type of its items on the wire."""

    inner: Step
    column: t.Array
    wire: Type


@attrs.frozen(eq=False)
class Entries(Step):
    """A map, and the type of its values on the wire; its keys are strings."""

    inner: Step
    column: t.Map | t.Multiset
    wire: Type


@attrs.frozen(eq=False)
class Union(Step):
    """The index of a branch, and then that branch."""

    branches: tuple[Step, ...]


@attrs.frozen(eq=False)
class Chosen(Step):
    """A value that becomes one member of a row that represents a union."""

    name: str
    inner: Step
    column: t.Row


@attrs.frozen(eq=False)
class Record(Step):
    """A record: its steps with the column of each (None: skipped), and columns with a constant value."""

    steps: tuple[tuple[Step, str | None], ...]
    constants: dict[str, Any]
    column: t.Row


def find_failures(step: Step, path: str = "", *, everywhere: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the path (``a.b``, ``a[].b``) and the error of each step below a step that fails for every value.

    A union fails for every value if all its branches except null do; the errors are those of the last one.

    Args:
        step: The step.
        path: Its path.
        everywhere: Whether to yield the errors of all branches of unions, also where others can be read.
    """

    def join(name: str) -> str:
        return f"{path}.{name}" if path and name else path or name

    match step:
        case Fail(message=message, path=below):
            yield join(below), message
        case Record(steps=steps):
            for inner, name in steps:
                yield from find_failures(inner, join(name or ""), everywhere=everywhere)
        case Chosen(inner=inner, name=name):
            yield from find_failures(inner, join(name), everywhere=everywhere)
        case Items(inner=inner) | Entries(inner=inner):
            yield from find_failures(inner, f"{path}[]", everywhere=everywhere)
        case Union(branches=branches):
            failures = [
                list(find_failures(branch, path, everywhere=everywhere))
                for branch in branches
                if everywhere or not isinstance(branch, Null)
            ]
            if everywhere:
                yield from (failure for one in failures for failure in one)
            elif failures and all(failures):
                yield from failures[-1]


def join_failures(step: Step | None) -> Fail | None:
    """The error of a record that fails as a whole: the errors of its fields; None if there is none, or no step."""
    failures = [] if step is None else list(dict.fromkeys(find_failures(step, everywhere=True)))
    if not failures:
        return None
    path, message = failures[0]
    return Fail("; ".join([message, *(f"field {p!r}: {m}" if p else m for p, m in failures[1:])]), path)
