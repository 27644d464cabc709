"""Numbers as Java's classes read and write them; the expected answers are theirs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kdsl.types.strings import numbers

INFINITY = float("inf")


@pytest.mark.parametrize(
    ("text", "value"),
    [("+1", 1), ("-0", 0), ("\u0661", 1), ("\uff11", 1), ("0000000000000000000000000012", 12), ("-128", -128)],
)
def test_integers_are_read(text: str, value: int) -> None:
    assert numbers.parse_integer(text, 8) == value


@pytest.mark.parametrize("text", ["", "+", "--1", "1_0", "0x1", " 1", "1.0", "1e3", "128", "9" * 5000, "\U0001d7d9"])
def test_other_strings_are_not_integers(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an integer|out of range"):
        numbers.parse_integer(text, 8)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 1.5\t\0", 1.5),
        ("1d", 1.0),
        ("1.5F", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("+1.5", 1.5),
        ("0x1.8p1", 3.0),
        ("0x.8p0", 0.5),
        ("-0x1p9999d", -INFINITY),
        ("1e400", INFINITY),
        ("+Infinity", INFINITY),
        ("1e-400", 0.0),
    ],
)
def test_doubles_are_read(text: str, value: float) -> None:
    assert numbers.parse_double(text) == value


@pytest.mark.parametrize("text", ["", ".", "1e", "inf", "nan", "NaNf", "0x1", "0xp1", "1_0", "\uff11", "\u00a01"])
def test_other_strings_are_not_doubles(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        numbers.parse_double(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.00000017881393432617187499", 1.0000001192092896),
        ("1.00000017881393432617187500", 1.000000238418579),
        ("-1.00000017881393432617187499", -1.0000001192092896),
        ("1.00000017881393432617187501", 1.000000238418579),
        ("16777217", 16777216.0),
        ("1e39", INFINITY),
        ("1e-50", 0.0),
    ],
)
def test_floats_are_rounded_once(text: str, value: float) -> None:
    assert numbers.parse_float(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("123.455", "123.46"),
        ("-0.005", "-0.01"),
        ("0.0049", "0.00"),
        ("1E+2", "100.00"),
        (".5", "0.50"),
        ("1.", "1.00"),
        ("+1.5", "1.50"),
        ("\u0661.5", "1.50"),
        ("1e-400", "0.00"),
        ("-0", "0.00"),
        ("0e999999999", "0.00"),
    ],
)
def test_decimals_are_rounded_half_up(text: str, value: str) -> None:
    assert str(numbers.parse_decimal(text, 5, 2)) == value


@pytest.mark.parametrize("text", ["999.995", "-999.995", "12345.6", "1e400", "9" * 50])
def test_decimals_with_too_many_digits_are_null(text: str) -> None:
    assert numbers.parse_decimal(text, 5, 2) is None


@pytest.mark.parametrize(
    "text",
    ["", ".", "1e", " 1", "1d", "NaN", "0x1", "1,5", "--1", "1_0", "1e9999999999", "1e999999999", "1e" + "9" * 30],
)
def test_other_strings_are_not_decimals(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a decimal number|exponent"):
        numbers.parse_decimal(text, 5, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e10, "1.0E10"),
        (2.5e-7, "2.5E-7"),
        (0.001, "0.001"),
        (0.000999, "9.99E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (5e-324, "4.9E-324"),
        (1e23, "1.0E23"),
        (-0.0, "-0.0"),
        (100.0, "100.0"),
        (float("nan"), "NaN"),
        (-INFINITY, "-Infinity"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert numbers.format_double(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e10, "1.0E10"), (3.4028235e38, "3.4028235E38"), (1.4e-45, "1.4E-45"), (2.0**24, "1.6777216E7")],
)
def test_floats_are_written_as_java_does(value: float, text: str) -> None:
    assert numbers.format_float(numbers.to_float(value)) == text


@pytest.mark.parametrize(
    ("value", "short", "plain"),
    [
        ("100000.000", "1E+5", "100000.000"),
        ("0.000", "0", "0.000"),
        ("-0.010", "-0.01", "-0.010"),
        ("-1200.00", "-1.2E+3", "-1200.00"),
        ("0.0000010000", "0.000001", "0.0000010000"),
        ("0.0000001000", "1E-7", "0.0000001000"),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678", None),
    ],
)
def test_decimals_are_written_as_java_does(value: str, short: str, plain: str | None) -> None:
    assert numbers.format_decimal(Decimal(value), plain=False) == short
    assert numbers.format_decimal(Decimal(value), plain=True) == (plain or short)
