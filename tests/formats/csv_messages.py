"""Hypothesis strategies of CSV dialects, row types, and messages that are right, nearly right or wrong."""

from __future__ import annotations

from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl_formats.csv import Csv
from tests import strategies

SCALARS: dict[str, tuple[t.DataType, tuple[str, ...]]] = {
    "STRING": (t.STRING, ("a", "b c", "é", "NULL", "x;y")),
    "BOOLEAN": (t.Boolean(), ("true", " TRUE ", "x", "false")),
    "TINYINT": (t.TinyInt(), ("1", "-128", "128", "+5", "٣")),
    "INT": (t.Int(), ("12", " 12", "2147483648", "-0", "1.5", "0x1")),
    "BIGINT": (t.BigInt(), ("9223372036854775807", "9223372036854775808", "007")),
    "FLOAT": (t.Float(), ("0.1", "16777217", "1e39", "1f", "NaN")),
    "DOUBLE": (t.Double(), ("1.5", "1e400", "-Infinity", "nan", ".5", "0x1p3", " 2 ")),
    "DECIMAL": (t.Decimal(5, 2), ("1.5", "1.555", "-0.001", "99999", "1e2", " 1", "+1")),
    "DATE": (
        t.Date(),
        ("2020-01-02", "2020-1-2", "2020-02-30", "1500-02-28", "1582-10-10", "0000-01-01", "9999-12-31"),
    ),
    "TIME": (t.Time(2), ("12:34:56", "12:34:56.789", "12:34", "24:00:00")),
    "TIMESTAMP": (t.Timestamp(3), ("2020-01-02 03:04:05", "2020-01-02 03:04:05.1234567", "2021-02-29 00:00:00")),
    "TIMESTAMP_LTZ": (t.TimestampLtz(3), ("2020-01-02 03:04:05Z", "2020-01-02 24:00:00Z", "2020-01-02 03:04:05")),
    "BYTES": (t.BYTES, ("AQID", "AQ==", "AR==", " AQID", "A")),
}
ODD = ("", " ", "n", '"', '""', "a\nb", "\r\n", "\\", "a\\n", "#", "\0", "\ufeff", "😀")


def dialects() -> st.SearchStrategy[Csv]:
    """The format with options that change what is read and written."""
    maybe = st.sampled_from([False, False, False, True])
    return st.builds(
        Csv,
        field_delimiter=st.sampled_from([",", ",", ",", ";", "|", "\\t", " ", "€"]),
        disable_quote_character=maybe,
        quote_character=st.none(),
        allow_comments=maybe,
        ignore_parse_errors=st.booleans(),
        array_element_delimiter=st.sampled_from([";", ":", "é"]),
        escape_character=st.sampled_from([None, None, None, "\\", "*", "'"]),
        null_literal=st.sampled_from([None, None, "n", "", "NULL"]),
        write_bigdecimal_in_scientific_notation=maybe,
        trim_spaces=maybe,
        ignore_trailing_unmappable=maybe,
        allow_trailing_comma=maybe.map(lambda value: not value),
        fail_on_missing_columns=maybe,
        empty_string_as_null=maybe,
    ) | st.builds(Csv, quote_character=st.sampled_from(["'", "#", "€"]), ignore_parse_errors=st.booleans())


def columns() -> st.SearchStrategy[t.DataType]:
    """The column types that CSV holds."""
    scalar = st.sampled_from([kind for kind, _ in SCALARS.values()])
    arrays = scalar.map(t.Array)
    rows = strategies.row_types(scalar, names=st.sampled_from("xyz"), min_size=1, max_size=3)
    return scalar | arrays | rows


def rows() -> st.SearchStrategy[t.Row]:
    """Row types of up to four columns."""
    return strategies.row_types(columns(), names=st.sampled_from("abcd"), min_size=1)


@st.composite
def values(draw: st.DrawFn, kind: t.DataType, csv: Csv) -> str:
    """A string that may or may not be a value of a type."""
    if isinstance(kind, t.Array | t.Row):
        inner = [kind.element] * draw(st.integers(0, 3)) if isinstance(kind, t.Array) else [f.type for f in kind.fields]
        return csv.array_element_delimiter.join(draw(values(part, csv)) for part in inner)
    plain = next(texts for of, texts in SCALARS.values() if of == kind)
    return draw(st.sampled_from(plain * 2 + ODD))


@st.composite
def messages(draw: st.DrawFn, row: t.Row, csv: Csv) -> bytes | None:
    """A message for a row type: mostly a line of values, some of them quoted, sometimes broken."""
    kind = draw(st.integers(0, 40))
    if kind == 0:
        return None
    if kind == 1:
        return draw(st.binary(max_size=8))
    quote = csv.quote_character or '"'
    delimiter = csv.field_delimiter.replace("\\t", "\t")
    parts = []
    for field in row.fields:
        value = draw(values(field.type, csv))
        match draw(st.integers(0, 9)):
            case 0 | 1 | 2:
                value = quote + value.replace(quote, quote * 2) + quote
            case 3:
                value = quote + f"{value}{delimiter}".replace(quote, quote * 2) + quote
            case 4:
                value = draw(st.sampled_from([f"{quote}{value}", f' "{value}" ', f"{value}{quote}", f'"{value}"x']))
        parts.append(value)
    if kind == 2:
        parts = parts[:-1]
    end = draw(
        st.sampled_from(["", "", "", "", "\n", "\r\n", "\r", delimiter, f"{delimiter} ", f"{delimiter}x", "\nx,y"])
    )
    start = draw(st.sampled_from(["", "", "", "", "", "", "#c\n", " ", "\n"]))
    return f"{start}{delimiter.join(parts)}{end if kind < 20 else ''}".encode()
