"""What a change-data message says beside its rows: where each piece stands, and how it becomes a value.

Each kind of piece has a plain conversion (`Piece.value`), which decides, and one of whole columns (`Piece.column`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.texts import numbers, temporal
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._text import reading
from kdsl_formats.json.errors import FieldError

Form = Literal["as it is", "milliseconds", "seconds", "clock"]

TEXTS = t.Map(t.STRING, t.STRING)
INSTANT = pa.timestamp("us", tz="UTC")
_UNITS: Mapping[str, int] = {"milliseconds": 1_000, "seconds": 1_000_000}
_MOST = np.iinfo(np.int64).max
_CLOCK = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII)


@attrs.frozen
class Piece:
    """A piece of metadata.

    Attributes:
        type: What it is for users.
        member: The member of the message that holds it.
        held: The type by which that member is read.
        form: How the member becomes the piece.
        of: The member of an object of texts that holds it; None where the first member is the piece.
        beside: Whether it stands beside the payload of a message with a schema, and is NULL in others.
    """

    type: t.DataType
    member: str
    held: t.DataType
    form: Form = "as it is"
    of: str | None = None
    beside: bool = False

    def value(self, held: Any) -> Any:
        """The piece out of what the member holds, as the reference decoder of JSON gives it.

        Raises:
            FieldError: It is no time, or too far away for one.
        """
        if self.of is not None and held is not None:
            held = dict(held).get(self.of)
        if held is None or self.form == "as it is":
            return held
        try:
            return _clock(held) if self.form == "clock" else _instant(held, _UNITS[self.form])
        except ValueError as e:
            raise FieldError(str(e)).inside(f"{self.member}.{self.of}" if self.of else self.member) from None

    def column(self, held: pa.Array) -> tuple[pa.Array, Mask]:
        """The pieces of many messages, and which of them are in doubt.

        Args:
            held: What the member holds; where `of` is given, the texts of that member of it.
        """
        none = np.zeros(len(held), dtype=bool)
        if self.form == "as it is":
            return held, none
        if self.form == "clock":
            return _clocks(held)
        doubts = none
        if pa.types.is_string(held.type):
            held, doubts = reading.integers(held, pa.int64())
        unit = _UNITS[self.form]
        far = pc.or_(pc.greater(held, _MOST // unit), pc.less(held, -(_MOST // unit)))
        wrong = np.asarray(pc.fill_null(far, False))
        if wrong.any():
            held = pc.if_else(far, 0, held)
        return pc.multiply(held, unit).view(INSTANT), doubts | wrong


def piece_type(piece: Piece) -> pa.DataType:
    """The Arrow type of a piece."""
    return arrow_type(piece.type)


def _instant(held: int | str, unit: int) -> int:
    number = numbers.parse_integer(held, 64) if isinstance(held, str) else held
    if abs(number) > _MOST // unit:
        raise ValueError(f"{number} is too far away for a timestamp")
    return number * unit


def _clock(text: str) -> int:
    """A date and a time of day in UTC, with a blank or a ``T`` between them; finer digits than microseconds are cut."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is no timestamp, as 2020-05-13 15:40:06.000000")
    year, month, day = (int(found[i]) for i in (1, 2, 3))
    hour, minute, second = (int(found[i] or 0) for i in (4, 5, 6))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        raise ValueError(f"{text!r} is no timestamp: there is no such day or time")
    days = temporal.parse_date(f"{year:04}-{month:02}-{day:02}")
    micros = int((found[7] or "").ljust(6, "0")[:6])
    return ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros


def _clocks(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Only the plain spelling with a fraction of up to six digits, and a blank or a ``T``, is known."""
    plain = pc.replace_substring_regex(texts, r"^(\d{4}-\d\d-\d\d)T", r"\1 ")
    made, doubts = reading.timestamps(plain, "SQL", zoned=False)
    return made.view(INSTANT), doubts
