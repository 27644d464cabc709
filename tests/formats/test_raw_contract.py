from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl_formats.raw import BYTES, NUMBERS, STRINGS, Raw
from tests import strategies
from tests.formats.contract import FormatContract

VARIANTS = (Raw(charset="UTF-16", endianness="little-endian", line_delimiter="\n"), Raw(line_delimiter="||"))


def row_types() -> st.SearchStrategy[t.Row]:
    held = (*NUMBERS, *STRINGS, *BYTES, t.Boolean)
    types = strategies.scalar_types().filter(lambda kind: isinstance(kind, held))
    return strategies.row_types(types, min_size=1, max_size=1)


class TestRawNumbers(FormatContract):
    format = Raw()
    variants = VARIANTS
    row = t.row(number=t.BigInt())
    rows_of_null = 1

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        return struct.pack(">q", number), {"number": number}

    def bad_messages(self) -> list[bytes]:
        return [b"", b"1234567", b"123456789"]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return row_types()


class TestRawLittleEndian(TestRawNumbers):
    format = Raw(endianness="little-endian")

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        return struct.pack("<q", number), {"number": number}


class TestRawLines(TestRawNumbers):
    """One line per message; a null message gives no row."""

    format = Raw(line_delimiter="--")
    row = t.row(number=t.Int())
    rows_of_null = 0

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        data = bytes(number // 40**i % 40 for i in (3, 2, 1, 0))  # 45 would be a part of the delimiter
        return data + b"--", {"number": int.from_bytes(data)}

    def bad_messages(self) -> list[bytes]:
        return [b"123--", b"12345", b"1234--12345--", b"--"]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        texts = st.sampled_from([t.VarChar(nullable=False), t.VarBinary(nullable=False)])
        return strategies.row_types(texts, min_size=1, max_size=1)

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return strategies.values(row.as_nullable(False), _without_delimiter)


def _without_delimiter(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    match kind:
        case t.VarChar():
            return strategies.TEXTS.map(lambda text: text.replace("-", "+"))
        case t.VarBinary():
            return st.binary(max_size=10).map(lambda data: data.replace(b"-", b"+"))
    return None
