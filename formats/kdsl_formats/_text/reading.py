"""Converts columns of strings in their usual form to values.

Each function returns the values, and a mask of the strings that need the fallback: these are NULL here, and the caller
reads them with `numbers` or `temporal`. All other values equal those that these modules return.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._columns.arrays import Integers, Mask, bitmap, build_array, content, find_bounds, slices, validity
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._columns.unscaled import decimal_array
from kdsl_formats._text import digits

_INTEGER = r"^-?[0-9]{1,18}$"
_FLOATING = r"^[+-]?([0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300})([eE][+-]?[0-9]{1,5})?$"
_DECIMAL = r"^[+-]?([0-9]{1,19}(\.[0-9]{0,18})?|[0-9]{1,9}(\.[0-9]{1,9})?[eE][+-]?[0-9])$"
_INTEGER_BYTES = np.zeros(256, dtype=bool)
_INTEGER_BYTES[list(b"0123456789-")] = True
_DECIMAL_BYTES = np.zeros(256, dtype=bool)
_DECIMAL_BYTES[list(b"0123456789+-.")] = True
_FLOATING_BYTES = np.zeros(256, dtype=bool)
_FLOATING_BYTES[list(b"0123456789+-.eE")] = True
BASE64 = np.full(256, 255, dtype=np.uint8)  # the value of each letter; 255 marks other bytes
BASE64[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = np.arange(64)
_DATE_LENGTH, _ZONE = 10, 90
_WIDEST = pa.decimal128(38, 18)


def integers(strings: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Read signed integers; also returns which need the fallback: other forms (``+``, blanks), or out of range.

    They are NULL here.
    """
    some, fallback = _keep_with_bytes(strings, _INTEGER_BYTES)
    try:
        return pc.cast(some, kind), fallback
    except pa.ArrowInvalid:
        pass
    wide = pc.cast(_keep_matching(strings, _INTEGER), pa.int64())
    bound = 1 << kind.bit_width - 1
    if kind.bit_width < 64:
        wide = pc.if_else(
            pc.and_(pc.greater_equal(wide, -bound), pc.less(wide, bound)), wide, pa.scalar(None, pa.int64())
        )
    return pc.cast(wide, kind), _unread(strings, wide)


def floats(strings: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Read floats, rounded once; also returns which need the fallback: names (NaN), Java's suffixes, other strings."""
    some, fallback = _keep_with_bytes(strings, _FLOATING_BYTES)
    try:
        return pc.cast(some, kind), fallback
    except pa.ArrowInvalid:
        pass
    plain = _keep_matching(strings, _FLOATING)
    return pc.cast(plain, kind), _unread(strings, plain)


def decimals(strings: StringSpans, kind: pa.Decimal128Type) -> tuple[pa.Array, Mask]:
    """Read decimals, rounded half up to their scale, and return which need the fallback; too many digits give NULL."""
    numbers, plain = digits.decimals(strings, kind.scale)
    plain &= np.abs(numbers) < 10 ** min(kind.precision, 18)
    return _with_others(
        strings,
        plain,
        decimal_array(kind, numbers, numbers >> 63, bitmap(plain)),
        lambda others: _other_decimals(others, kind),
    )


def _other_decimals(strings: pa.StringArray, kind: pa.Decimal128Type) -> tuple[pa.Array, Mask]:
    """Read decimals of any spelling, as `decimals` does."""
    start, end = find_bounds(strings)
    present = np.asarray(strings.is_valid())
    # Arrow does not detect an overflow if the digits of a number and the scale together exceed its precision.
    fallback = _keep_with_bytes(strings, _DECIMAL_BYTES)[1] | (present & (end - start > t.MAX_DECIMAL - kind.scale))
    values = pa.nulls(len(strings), kind)
    try:
        values = pc.cast(_keep_only(strings, present & ~fallback) if fallback.any() else strings, kind)
    except pa.ArrowInvalid:
        fallback = present
    if not fallback.any():
        return values, fallback
    if kind.scale > _WIDEST.scale:
        return values, fallback
    strings = _keep_only(strings, fallback)
    plain = _keep_matching(strings, _DECIMAL)
    wide = pc.round(pc.cast(plain, _WIDEST), ndigits=kind.scale, round_mode="half_towards_infinity")
    whole = kind.precision - kind.scale
    if whole < _WIDEST.precision - _WIDEST.scale:
        bound = pa.scalar(10**whole, pa.decimal128(38, 0)).cast(_WIDEST)
        wide = pc.if_else(pc.less(pc.abs(wide), bound), wide, pa.scalar(None, _WIDEST))
    return pc.coalesce(values, pc.cast(wide, kind)), _unread(strings, plain)


def dates(strings: StringSpans, *, zoned: bool = False) -> tuple[pa.Array, Mask]:
    """Read dates as ``yyyy-MM-dd``, in the years 0001 to 9999; also returns which strings need the fallback.

    Args:
        strings: The strings.
        zoned: Whether each ends with ``Z``.
    """
    days, plain = digits.dates(strings, zoned=zoned)
    return build_array(days.astype(np.int32), pa.date32(), plain), strings.present & ~plain


def times(strings: StringSpans, *, zoned: bool = False) -> tuple[pa.Array, Mask]:
    """Read times as ``HH:mm:ss`` with up to nine digits of a fraction; also returns which strings need the fallback.

    Args:
        strings: The strings.
        zoned: Whether each ends with ``Z``.
    """
    nanos, plain = digits.times(strings, zoned=zoned)
    return build_array(nanos, pa.time64("ns"), plain), strings.present & ~plain


def timestamps(strings: StringSpans, standard: str, *, zoned: bool) -> tuple[pa.Array, Mask]:
    """Read timestamps in microseconds, finer digits cut off; also returns which strings need the fallback.

    Args:
        strings: ``yyyy-MM-dd HH:mm:ss[.fraction]`` for SQL, ``yyyy-MM-ddTHH:mm[:ss[.fraction]]`` for ISO-8601.
        standard: ``"SQL"`` or ``"ISO-8601"``.
        zoned: Whether each string ends with ``Z``; the values then have the zone UTC.
    """
    micros, plain = _timestamps(strings, standard, zoned=zoned)
    return build_array(micros, _timestamp_type(zoned=zoned), plain), strings.present & ~plain


def _timestamps(strings: StringSpans, standard: str, *, zoned: bool) -> tuple[Integers, Mask]:
    """Read timestamps of a standard as microseconds; also returns which strings are timestamps."""
    iso = standard == "ISO-8601"
    return digits.timestamps(strings, b"T" if iso else b" ", zoned=zoned, seconds=not iso)


def _timestamp_type(*, zoned: bool) -> pa.TimestampType:
    """The type of timestamps in microseconds, in UTC if they have a zone."""
    return pa.timestamp("us", tz="UTC") if zoned else pa.timestamp("us")


def moments(strings: StringSpans, *, zoned: bool) -> tuple[pa.Array, Mask]:
    """Read dates and timestamps as `inferred.parse_moment` does; also returns which strings need the fallback.

    Args:
        strings: ``yyyy-MM-dd``, or a timestamp as in `timestamps`.
        zoned: Whether some may end with ``Z``; the values then have the zone UTC.
    """
    micros, plain = np.zeros(len(strings), dtype=np.int64), np.zeros(len(strings), dtype=bool)
    length = strings.end - strings.start
    days = strings.present & (length == _DATE_LENGTH)
    longer = strings.present & (length > _DATE_LENGTH)
    separators = strings.data[np.where(longer, strings.start + _DATE_LENGTH, 0)]
    last = strings.data[np.where(longer, strings.end - 1, 0)]
    for standard, separator in (("SQL", b" "), ("ISO-8601", b"T")):
        for with_zone in (False, True) if zoned else (False,):
            group = longer & (separators == separator[0]) & ((last == _ZONE) == with_zone)
            if group.any():
                some, read = _timestamps(strings, standard, zoned=with_zone)
                micros, plain = np.where(read, some, micros), plain | read
    if days.any():
        some, read = digits.dates(strings, zoned=False)
        micros, plain = np.where(read, some * digits.MICROS_PER_DAY, micros), plain | read
    return build_array(micros, _timestamp_type(zoned=zoned), plain), strings.present & ~plain


def latin_bytes(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """The bytes of ASCII strings; also returns which need the fallback, and are NULL here.

    Those are the strings that are not ASCII, or have a backslash, which may begin an escape.
    """
    data = content(strings)
    fallback = np.zeros(len(strings), dtype=bool)
    others = np.flatnonzero((data >= 0x80) | (data == 92))
    if others.size:
        fallback[np.searchsorted(find_bounds(strings)[1], others, side="right")] = True
        strings = _keep_only(strings, np.asarray(strings.is_valid()) & ~fallback)
    return strings.cast(pa.binary()), fallback


def base64(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Decode base64 with padding and without blanks; also returns which need the fallback, and are NULL here."""
    start, end = find_bounds(strings)
    length = end - start
    data = content(strings)
    ends = np.append(np.zeros(2, dtype=np.uint8), data)  # so that an empty string has two last bytes, too
    pads = np.where(length > 0, (ends[end + 1] == 61).astype(np.int64) + ((ends[end] == 61) & (ends[end + 1] == 61)), 0)
    six = BASE64.take(data)
    non_letters = np.flatnonzero(six == 255)
    fallback = length % 4 != 0
    owner = np.searchsorted(end, non_letters, side="right")
    wrong = (data[non_letters] != 61) | (non_letters < end[owner] - pads[owner])
    fallback[owner[wrong]] = True
    if fallback.any():
        present = np.asarray(strings.is_valid())
        return base64(_keep_only(strings, present & ~fallback))[0], fallback & present
    six[non_letters] = 0
    groups = six.reshape(-1, 4)
    groups_of_bytes = np.empty((len(groups), 3), dtype=np.uint8)
    groups_of_bytes[:, 0] = groups[:, 0] << 2 | groups[:, 1] >> 4
    groups_of_bytes[:, 1] = groups[:, 1] << 4 | groups[:, 2] >> 2
    groups_of_bytes[:, 2] = groups[:, 2] << 6 | groups[:, 3]
    flat = groups_of_bytes.reshape(-1)
    size = length // 4 * 3
    if non_letters.size:
        last = np.cumsum(size)
        is_content = np.ones(len(flat), dtype=bool)
        is_content[last[pads > 0] - 1] = False
        is_content[last[pads > 1] - 2] = False
        flat = flat[is_content]
    offsets = np.zeros(len(strings) + 1, dtype=np.int32)
    np.cumsum(size - pads, out=offsets[1:])
    buffers = [validity(strings), pa.py_buffer(offsets), pa.py_buffer(flat)]
    return pa.Array.from_buffers(pa.binary(), len(strings), buffers), fallback


def _with_others(
    strings: StringSpans, plain: Mask, values: pa.Array, read: Callable[[pa.StringArray], tuple[pa.Array, Mask]]
) -> tuple[pa.Array, Mask]:
    """Read the strings that are not plain by a function, and put them among the values of the others.

    Args:
        strings: The strings.
        plain: Which of them ``values`` has.
        values: The values; NULL for the others.
        read: Reads strings of any spelling, and returns which of them need the fallback.
    """
    others = np.flatnonzero(strings.present & ~plain)
    fallback = np.zeros(len(strings), dtype=bool)
    if not others.size:
        return values, fallback
    read_values, fallback[others] = read(strings.pick(others).array)
    mask = np.zeros(len(strings), dtype=bool)
    mask[others] = True
    return pc.replace_with_mask(values, pa.array(mask), read_values), fallback


def _keep_with_bytes(strings: pa.StringArray, known: Mask) -> tuple[pa.StringArray, Mask]:
    """The strings that contain only known bytes (others become NULL), and which strings contain other bytes."""
    good = known.take(content(strings))
    fallback = np.zeros(len(strings), dtype=bool)
    if good.all():
        return strings, fallback
    fallback[np.searchsorted(find_bounds(strings)[1], np.flatnonzero(~good), side="right")] = True
    present = np.asarray(strings.is_valid())
    return _keep_only(strings, present & ~fallback), fallback & present


def _keep_matching(strings: pa.StringArray, pattern: str) -> pa.StringArray:
    """The strings that match a pattern; others become NULL."""
    return _keep_only(strings, np.asarray(pc.fill_null(pc.match_substring_regex(strings, pattern), False)))


def _keep_only(strings: pa.StringArray, keep: Mask) -> pa.StringArray:
    """The strings that a mask selects; others become NULL and have no bytes."""
    return slices(content(strings), *find_bounds(strings), keep, pa.string())


def _unread(strings: pa.Array, values: pa.Array) -> Mask:
    """Which strings have no value, although they are not NULL."""
    return np.asarray(pc.and_(values.is_null(), strings.is_valid()))
