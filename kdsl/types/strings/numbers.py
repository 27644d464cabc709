"""Numbers as Java's classes read and write them: ``Integer``, ``Double``, ``Float``, ``BigDecimal``, ``String.trim``.

One value at a time; these functions define what a string means. Parsers raise ValueError for a string that is not a
number.
"""

from __future__ import annotations

import decimal
import re
import struct
from decimal import Decimal
from fractions import Fraction
from functools import cache

BLANKS = "".join(map(chr, range(0x21)))
_DOUBLE = re.compile(r"([+-]?)(?:(NaN)|(Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
_HEX_DOUBLE = re.compile(r"([+-]?)0[xX]([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?[pP]([+-]?[0-9]+)[fFdD]?")
_DECIMAL = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?", re.UNICODE)
_LARGEST_POWER = 646_456_993  # of ten, that a java.math.BigInteger holds
_LARGEST_EXPONENT = 2**31 - 1
_FLOAT_HALFWAY = 0x1000_0000  # the bits of a double below a float's, exactly in the middle of two floats


def trim(text: str) -> str:
    """Remove blanks and control characters at both ends (Java's ``String.trim``)."""
    return text.strip(BLANKS)


def parse_integer(text: str, bits: int) -> int:
    """Read a signed integer of 8, 16, 32 or 64 bits; a sign and digits of any script up to U+FFFF, no blanks.

    Raises:
        ValueError: The string is not an integer, or out of range.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise ValueError("not an integer")
    if len(digits) > 19 and len(digits.lstrip("0")) > 19:
        raise ValueError("out of range")
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError("out of range")
    return value


def parse_double(text: str) -> float:
    """Read a double: decimal or hexadecimal, ``NaN``, ``Infinity``, an ending ``f`` or ``d``; blanks are trimmed.

    A number that is too large is infinite.

    Raises:
        ValueError: The string is not a number.
    """
    text = trim(text)
    match = _DOUBLE.fullmatch(text)
    if match:
        return float(f"{match[1]}{match[2] or match[3] or match[4]}")
    exact = _parse_hexadecimal(text)
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def parse_float(text: str) -> float:
    """Read a 32-bit float, rounded once from the text; the grammar is `parse_double`'s.

    A number that is too large is infinite.

    Raises:
        ValueError: The string is not a number.
    """
    text = trim(text)
    value = parse_double(text)
    if struct.unpack("<Q", struct.pack("<d", value))[0] & 0x1FFF_FFFF != _FLOAT_HALFWAY:
        return to_float(value)
    match = _DOUBLE.fullmatch(text)
    exact = Fraction(Decimal(match[1] + match[4])) if match else _parse_hexadecimal(text)
    near = Fraction(value)
    if exact == near:
        return to_float(value)
    toward = float("inf") if exact > near else float("-inf")
    return to_float(
        struct.unpack("<d", struct.pack("<q", _float_bits(value) + (1 if (toward > 0) == (value > 0) else -1)))[0]
    )


def to_float(value: float) -> float:
    """Round a double to 32 bits; values that are too large become infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _float_bits(value: float) -> int:
    """Return the bits of a double as a signed integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _parse_hexadecimal(text: str) -> Fraction:
    """Parse a number in Java's hexadecimal form, exactly but with a limited exponent."""
    match = _HEX_DOUBLE.fullmatch(text)
    if not match or not (match[2] or match[3]):
        raise ValueError("not a number")
    digits, fraction = match[2], match[3] or ""
    exponent = max(min(int(match[4]), 20_000), -20_000) - 4 * len(fraction)
    value = Fraction(int(digits + fraction, 16))
    return (-value if match[1] == "-" else value) * Fraction(2) ** exponent


@cache
def _decimal_context(precision: int) -> decimal.Context:
    """Return the cached context of decimals with a precision, which rounds half up."""
    return decimal.Context(
        prec=precision,
        rounding=decimal.ROUND_HALF_UP,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
        traps=[decimal.InvalidOperation],
    )


def parse_decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """Read a DECIMAL(precision, scale), rounded half up to the scale; None when it has too many digits.

    Digits of any script up to U+FFFF are read, blanks are not.

    Raises:
        ValueError: The string is not a number, or its exponent is too large.
    """
    match = _DECIMAL.fullmatch(text)
    if not match or not (text.isascii() or max(text) <= "\uffff"):
        raise ValueError("not a decimal number")
    sign, digits, power = match.groups()
    number = Decimal(sign + digits)
    if power and number:
        exponent = int(power) if len(power) < 20 else _LARGEST_EXPONENT + 1
        decimals = len(digits.partition(".")[2])
        if abs(exponent) > _LARGEST_EXPONENT or abs(exponent - decimals + scale) > _LARGEST_POWER:
            raise ValueError("the exponent is too large")
        number = number.scaleb(exponent, _decimal_context(decimal.MAX_PREC))
    try:
        return number.quantize(_unit(scale), context=_decimal_context(precision)) if number else _unit(scale) * 0
    except decimal.InvalidOperation:
        return None


@cache
def _unit(scale: int) -> Decimal:
    """Return the smallest positive decimal of a scale."""
    return Decimal(1).scaleb(-scale)


def parse_exact(text: str) -> Decimal:
    """Read a JSON number exactly; beyond the exponents of ``Decimal`` it is infinite or zero.

    Raises:
        ValueError: The string is not a number.
    """
    try:
        return Decimal(text)
    except decimal.InvalidOperation:
        return Decimal(float(text))


def format_double(value: float) -> str:
    """Write a double as Java does: its shortest digits, with an exponent from ten million on and below a thousandth."""
    return _format_as_java(value, repr(value), f"{value:.1e}")


def format_float(value: float) -> str:
    """Write a 32-bit float, passed as a double, as Java does; AssertionError for a double that 32 bits do not hold."""
    if value != value or value in (float("inf"), float("-inf"), 0.0):  # NaN
        return format_double(value)
    for digits in range(9):
        text = f"{value:.{digits}e}"
        if to_float(float(text)) == value:
            return _format_as_java(value, text, f"{value:.1e}")
    raise AssertionError(value)


def _format_as_java(value: float, shortest: str, two_digits: str) -> str:
    """Write a double in Java's layout, from the shortest string that identifies it.

    Java writes at least two digits: if the shortest string has one, those of ``two_digits`` are written.
    """
    if value != value:  # NaN
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    if len(digits) == 1:  # Java writes two digits at least, and then the two that come nearest
        sign, digits, exponent = Decimal(two_digits).as_tuple()
        assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    point = len(shown) + exponent  # of the point, counted from the first digit
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            text = "0." + "0" * -point + shown
        else:
            text = shown[:point].ljust(point, "0") + "." + (shown[point:] or "0")
        text = text.rstrip("0")
        text += "0" if text.endswith(".") else ""
    else:
        text = f"{shown[0]}.{shown[1:].rstrip('0') or '0'}E{point - 1}"
    return "-" + text if sign else text


def format_decimal(value: Decimal, *, plain: bool) -> str:
    """Write a decimal as Java's BigDecimal does.

    Args:
        value: The number, at its column's scale.
        plain: Whether to write all digits of the scale; otherwise trailing zeros are dropped, and the scientific
            notation is used where ``BigDecimal.toString`` would.
    """
    if plain:
        return f"{value:f}"
    stripped = value.normalize(_decimal_context(decimal.MAX_PREC)) if value else Decimal(0)
    return str(stripped)
