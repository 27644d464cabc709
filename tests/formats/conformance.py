"""The reference's recorded answers: what each format makes of a message or a row.

A case stands in one line of ``data/*-cases.jsonl``. Values are compared after `expected` and `shown` have brought the
record's shape and Arrow's to the same: DECIMAL as text at its scale, dates as days, times and timestamps as
nanoseconds, bytes as ``0x…``, rows and arrays as lists, maps as lists of pairs in the order of their keys. A row of a
format that carries changes is a pair of its kind and its values; those of metadata stand behind the columns'.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import ALONE, ROW_KINDS, Decoded, Direction, Format, Use, format_class
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl.types.parse import parse_type

DATA = Path(__file__).parent / "data"
_DATE = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d)")
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
NANOS = 1_000_000_000
ERROR = "error"


@attrs.frozen
class Case:
    """One recorded answer.

    Attributes:
        id: Its name, as ``json-012``.
        kind: ``"decode"`` or ``"encode"``.
        format: The format's identifier.
        row: The type of the rows.
        options: Flink's keys and strings.
        input: The message to decode; None is a null message.
        values: The row to encode, in the record's shape.
        kind_of_row: What that row says, one of `ROW_KINDS`.
        metadata: The keys of the metadata that is decoded, too.
        answer: The rows in the record's shape, or the message, or `ERROR`.
    """

    id: str
    kind: str
    format: str
    row: t.Row
    options: dict[str, str]
    input: bytes | None
    values: Any
    answer: Any
    kind_of_row: str = "+I"
    metadata: tuple[str, ...] = ()

    @property
    def use(self) -> Use:
        """How the table uses the format."""
        return attrs.evolve(ALONE, metadata=self.metadata)

    def table_format(self) -> Format:
        """The format with the case's options."""
        return format_class(self.format).from_strings(self.options)


@attrs.frozen
class Difference:
    """A rule of the file ``differences.toml``: cases whose answer is meant to be another one.

    Attributes:
        format: The format's identifier.
        reason: Why the other answer is better for users.
        inputs: The messages that it means.
        ids: More cases that it means.
        options: Options that a case must have; '' is an option that is not given.
        types: Types; a case must have a column of one of them. Empty allows all cases.
    """

    format: str
    reason: str
    inputs: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    options: dict[str, str] = attrs.field(factory=dict)
    types: tuple[str, ...] = ()

    def covers(self, case: Case) -> bool:
        """Whether a case is one of those that the rule means."""
        if case.format != self.format or any(case.options.get(k, "") != v for k, v in self.options.items()):
            return False
        if self.types and not any(f.type.spelling in self.types for f in case.row.fields):
            return False
        message = (case.input or b"").decode("utf-8", "replace")
        return case.id in self.ids or (case.kind == "decode" and message in self.inputs)


def cases(name: str) -> list[Case]:
    """All cases of ``data/<name>-cases.jsonl``."""
    lines = (DATA / f"{name}-cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [read_case(json.loads(line)) for line in lines if line.strip()]


def differences(name: str) -> list[Difference]:
    """The intended differences of one format."""
    document = tomllib.loads((DATA.parent / "differences.toml").read_text(encoding="utf-8"))
    entries = [entry for entry in document["difference"] if entry["format"] == name]
    return [
        Difference(
            e["format"],
            e["reason"],
            tuple(e.get("inputs", ())),
            tuple(e.get("ids", ())),
            e.get("options", {}),
            tuple(e.get("types", ())),
        )
        for e in entries
    ]


def read_case(record: dict[str, Any]) -> Case:
    """A case out of a recorded answer."""
    row = t.Row(tuple(t.Field(name, parse_type(kind)) for name, kind in record["columns"]))
    metadata = tuple(record.get("metadata", ()))
    kind = format_class(record["format"])
    if metadata == ("*",):
        metadata = tuple(kind.metadata)
    extended = t.Row((*row.fields, *(t.Field(f"value.{key}", kind.metadata[key]) for key in metadata)))
    message = record.get("input")
    if "input_b64" in record:
        data: bytes | None = base64.b64decode(record["input_b64"])
    else:
        data = None if message is None else message.encode()
    answer: Any = ERROR
    if "rows" in record:
        answer = [None if r is None else from_record(r[1], extended) for r in record["rows"]]
        if not kind.insert_only:
            answer = [None if r is None else (r[0], v) for r, v in zip(record["rows"], answer, strict=True)]
    elif "error" not in record:
        answer = _message(record)
    values = record["row"][1] if "row" in record else None
    says = record["row"][0] if "row" in record else "+I"
    return Case(
        record["id"], record["kind"], record["format"], row, record["options"], data, values, answer, says, metadata
    )


def _message(record: dict[str, Any]) -> bytes | None:
    if "output_b64" in record:
        return base64.b64decode(record["output_b64"])
    if "output_hex" in record:
        return bytes.fromhex(record["output_hex"])
    return None if record["output"] is None else str(record["output"]).encode()


def share(name: str, same: int, different: int) -> str:
    """How much of the recorded answers a format gives, in a sentence."""
    count = same + different
    return f"{name}: {same} of {count} answers are the reference's ({same / count:.1%}), {different} differ on purpose"


def answer(case: Case) -> Any:
    """What kdsl answers, in the form of `Case.answer`."""
    result = case.table_format()
    direction: Direction = "read" if case.kind == "decode" else "write"
    if any(True for _ in result.problems()) or any(p.severity == "error" for p in result.check(case.row, direction)):
        return ERROR
    if case.kind == "decode":
        decoded = result.decoder(case.row, case.use).decode(pa.array([case.input], pa.binary()))
        return ERROR if decoded.bad else answer_of(case, decoded)
    rows = pa.array([arrow_value(case.values, case.row)], arrow_type(case.row))
    kinds = None if result.insert_only else pa.array([ROW_KINDS.index(case.kind_of_row)], pa.int8())
    encoded = result.encoder(case.row).encode(rows, kinds)
    return ERROR if encoded.bad else encoded.messages[0].as_py()


def answer_of(case: Case, decoded: Decoded) -> list[Any]:
    """The rows of a decoded batch, in the form of `Case.answer`; looks at the types, too."""
    result = case.table_format()
    assert decoded.rows.type == arrow_type(case.row)
    decoded.rows.validate(full=True)
    assert list(decoded.metadata) == list(case.metadata)
    columns = [[from_arrow(v, case.row) for v in python_rows(decoded.rows)]]
    for key, array in decoded.metadata.items():
        kind = type(result).metadata[key]
        assert array.type == arrow_type(kind)
        array.validate(full=True)
        columns.append([[from_arrow(v, kind)] for v in python_rows(array)])
    rows = [list(chain(*values)) for values in zip(*columns, strict=True)]
    if result.insert_only:
        return rows
    kinds = [0] * len(rows) if decoded.kinds is None else decoded.kinds.to_pylist()
    return [(ROW_KINDS[kind], row) for kind, row in zip(kinds, rows, strict=True)]


def python_rows(array: pa.Array) -> Iterator[Any]:
    """The values of an array, with dates, times and timestamps as numbers."""
    yield from plain_values(array)


def from_arrow(value: Any, kind: t.DataType) -> Any:
    """A value out of Arrow (see `python_rows`) in the common shape."""
    if value is None:
        return None
    match kind:
        case t.Row(fields=fields):
            return [from_arrow(value[f.name], f.type) for f in fields]
        case t.Array(element=element):
            return [from_arrow(v, element) for v in value]
        case t.Map(key=key, value=member):
            return sorted(([from_arrow(k, key), from_arrow(v, member)] for k, v in value), key=str)
        case t.Multiset(element=element):
            return sorted(([from_arrow(k, element), v] for k, v in value), key=str)
        case t.Decimal():
            return f"{value:f}"
        case t.Binary() | t.VarBinary():
            return f"0x{value.hex()}"
        case t.Timestamp() | t.TimestampLtz():
            return value * 1000
        case t.Float() | t.Double() if value != value:
            return "NaN"
        case _:
            return value


def from_record(value: Any, kind: t.DataType) -> Any:
    """A value out of a record in the common shape."""
    if value is None:
        return None
    match kind:
        case t.Row(fields=fields):
            return [from_record(v, f.type) for v, f in zip(value, fields, strict=True)]
        case t.Array(element=element):
            return [from_record(v, element) for v in value]
        case t.Map(value=member):
            return sorted(([k, from_record(v, member)] for k, v in value.items()), key=str)
        case t.Multiset():
            return sorted(([k, v] for k, v in value.items()), key=str)
        case t.Float():
            return value if value == "NaN" else float(np.float32(value))
        case t.Double():
            return value if value == "NaN" else float(value)
        case t.Date():
            return _days(value)
        case t.Time():
            return _nanos(value)
        case t.Timestamp() | t.TimestampLtz():
            day, _, clock = value.removesuffix("Z").partition("T")
            return _days(day) * 86400 * NANOS + _nanos(clock)
        case _:
            return value


def arrow_value(value: Any, kind: t.DataType) -> Any:
    """A value out of a record as Arrow takes it."""
    if value is None:
        return None
    match kind:
        case t.Row(fields=fields):
            return {f.name: arrow_value(v, f.type) for v, f in zip(value, fields, strict=True)}
        case t.Array(element=element):
            return [arrow_value(v, element) for v in value]
        case t.Map(key=key, value=member):
            return [(None if k == "null" else arrow_value(k, key), arrow_value(v, member)) for k, v in value.items()]
        case t.Multiset(element=element):
            return [(arrow_value(k, element), v) for k, v in value.items()]
        case t.Decimal(precision=precision, scale=scale):
            return pa.scalar(value).cast(pa.decimal128(precision, scale)).as_py()
        case t.Binary() | t.VarBinary():
            return bytes.fromhex(value.removeprefix("0x"))
        case t.Float() | t.Double():
            return float(value)
        case t.Timestamp() | t.TimestampLtz():
            return from_record(value, kind) // 1000
        case t.Date() | t.Time():
            return from_record(value, kind)
        case _:
            return value


def has_null_key(value: Any, kind: t.DataType) -> bool:
    """Whether a recorded value holds a map with a NULL key, which neither Arrow nor Spark can hold."""
    match kind:
        case t.Row(fields=fields) if value is not None:
            return any(has_null_key(v, f.type) for v, f in zip(value, fields, strict=True))
        case t.Array(element=element) if value is not None:
            return any(has_null_key(v, element) for v in value)
        case t.Map(value=member) if value is not None:
            return "null" in value or any(has_null_key(v, member) for v in value.values())
        case _:
            return False


def _days(text: str) -> int:
    match = _DATE.fullmatch(text)
    assert match, text
    year, rest = int(match[1]), f"{match[2]}-{match[3]}"
    cycles, year = divmod(year, 400)  # numpy's calendar is Gregorian for all years; the cycle keeps them in range
    return int(np.datetime64(f"{year + 2000}-{rest}").astype(np.int64)) + (cycles - 5) * 146_097


def _nanos(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    assert match, text
    hour, minute, second = (int(match[i] or 0) for i in (1, 2, 3))
    return ((hour * 60 + minute) * 60 + second) * NANOS + int((match[4] or "").ljust(9, "0"))
