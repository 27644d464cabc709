"""Converts columns of strings in their usual form to values.

Each function returns the values, and a mask of the strings that need the fallback: these are NULL here, and the caller
reads them with `numbers` or `temporal`. All other values equal those that these modules return.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._columns.arrays import Indices, Mask, bounds, content, slices, validity

_INTEGER = r"^-?[0-9]{1,18}$"
_FLOATING = r"^[+-]?([0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300})([eE][+-]?[0-9]{1,5})?$"
_DECIMAL = r"^[+-]?([0-9]{1,19}(\.[0-9]{0,18})?|[0-9]{1,9}(\.[0-9]{1,9})?[eE][+-]?[0-9])$"
_DAY = (
    r"[0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"|[0-9]{2}(0[48]|[2468][048]|[13579][26])-02-29"
)
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_INTEGER_BYTES = np.zeros(256, dtype=bool)
_INTEGER_BYTES[list(b"0123456789-")] = True
_DECIMAL_BYTES = np.zeros(256, dtype=bool)
_DECIMAL_BYTES[list(b"0123456789+-.")] = True
_FLOATING_BYTES = np.zeros(256, dtype=bool)
_FLOATING_BYTES[list(b"0123456789+-.eE")] = True
BASE64 = np.full(256, 255, dtype=np.uint8)  # the value of each letter; 255 marks other bytes
BASE64[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = np.arange(64)
_WIDEST = pa.decimal128(38, 18)
_DAY_LENGTH = 10  # characters of yyyy-MM-dd


def integers(strings: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Read signed integers; also returns which need the fallback: other forms (``+``, blanks), or out of range."""
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


def decimals(strings: pa.StringArray, kind: pa.Decimal128Type) -> tuple[pa.Array, Mask]:
    """Read decimals, rounded half up to their scale, and return which need the fallback; too many digits give NULL."""
    start, end = bounds(strings)
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


def dates(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Read dates as ``yyyy-MM-dd``, in the years 0001 to 9999; also returns which strings need the fallback."""
    return _parse(strings, pa.date32(), f"^({_DAY})$")


def times(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Read times as ``HH:mm:ss`` with up to nine digits of a fraction; also returns which strings need the fallback."""
    plain = _keep_matching(strings, rf"^{_CLOCK}:[0-5][0-9](\.[0-9]{{1,9}})?$")
    instants = pc.cast(pc.binary_join_element_wise("1970-01-01 ", plain, ""), pa.timestamp("ns"))
    return pc.cast(instants.view(pa.int64()), pa.time64("ns")), _unread(strings, plain)


def timestamps(strings: pa.StringArray, standard: str, *, zoned: bool) -> tuple[pa.Array, Mask]:
    """Read timestamps in microseconds, finer digits cut off; also returns which strings need the fallback.

    Args:
        strings: ``yyyy-MM-dd HH:mm:ss[.fraction]`` for SQL, ``yyyy-MM-ddTHH:mm[:ss[.fraction]]`` for ISO-8601.
        standard: ``"SQL"`` or ``"ISO-8601"``.
        zoned: Whether each string ends with ``Z``; the values then have the zone UTC.
    """
    kind = pa.timestamp("us", tz="UTC") if zoned else pa.timestamp("us")
    iso = standard == "ISO-8601"
    start, end = bounds(strings)
    length = (end - start) - zoned
    data = content(strings)
    # An index past the end of a short string is clipped; the length of the string excludes it later.
    last_index = max(len(data) - 1, 0)
    if not len(data):
        return pa.nulls(len(strings), kind), np.asarray(strings.is_valid())
    present = np.asarray(strings.is_valid())
    shaped = (length >= 19) | ((length == 16) & iso)
    shaped &= data[np.minimum(start + 10, last_index)] == (84 if iso else 32)
    if zoned:
        shaped &= data[end - 1] == 90
    if bool((length > 26).any()):
        for offset in (26, 27, 28):
            shaped &= (length <= offset) | (data[np.minimum(start + offset, last_index)] - 48 <= 9)
        shaped &= length <= 29
    fallback = present & ~shaped
    try:
        return _instants(_keep_only(strings, shaped & present) if fallback.any() else strings, length, kind), fallback
    except pa.ArrowInvalid:
        pass
    seconds = r"(:[0-5][0-9](\.[0-9]{1,9})?)?" if iso else r":[0-5][0-9](\.[0-9]{1,9})?"
    plain = _keep_matching(strings, f"^({_DAY}){'T' if iso else ' '}{_CLOCK}{seconds}{'Z' * zoned}$")
    return _instants(plain, length, kind), _unread(strings, plain)


def moments(strings: pa.StringArray, *, zoned: bool) -> tuple[pa.Array, Mask]:
    """Read dates and timestamps as `inferred.parse_moment` does; also returns which strings need the fallback.

    Args:
        strings: ``yyyy-MM-dd``, or a timestamp as in `timestamps`.
        zoned: Whether some may end with ``Z``; the values then have the zone UTC.
    """
    kind = pa.timestamp("us", tz="UTC") if zoned else pa.timestamp("us")
    start, end = bounds(strings)
    data = content(strings)
    present = np.asarray(strings.is_valid())
    last_index = max(len(data) - 1, 0)
    if not len(data):
        return pa.nulls(len(strings), kind), present
    days = present & (end - start == _DAY_LENGTH)
    iso = data[np.minimum(start + _DAY_LENGTH, last_index)] == 84
    instants = data[np.maximum(end - 1, 0)] == 90 if zoned else np.zeros(len(strings), dtype=bool)
    values, fallback = pa.nulls(len(strings), kind), present.copy()
    if days.any():
        some, unread = dates(_keep_only(strings, days))
        values, fallback[days] = pc.cast(some, pa.timestamp("us")).view(kind), unread[days]
    for standard, in_form in (("SQL", ~iso), ("ISO-8601", iso)):
        for with_zone in (False, True) if zoned else (False,):
            group = present & ~days & in_form & (instants == with_zone)
            if not group.any():
                continue
            if group.all():
                some, unread = timestamps(strings, standard, zoned=with_zone)
                return some.view(kind), unread
            some, unread = timestamps(_keep_only(strings, group), standard, zoned=with_zone)
            values, fallback[group] = pc.coalesce(values, some.view(kind)), unread[group]
    return values, fallback


def latin_bytes(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """The bytes that the characters of strings stand for; also returns which need the fallback.

    Those are the strings that are not ASCII, or have a backslash, which may begin an escape.
    """
    data = content(strings)
    fallback = np.zeros(len(strings), dtype=bool)
    others = np.flatnonzero((data >= 0x80) | (data == 92))
    if others.size:
        fallback[np.searchsorted(bounds(strings)[1], others, side="right")] = True
        strings = _keep_only(strings, np.asarray(strings.is_valid()) & ~fallback)
    return strings.cast(pa.binary()), fallback


def base64(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Decode base64 with padding and without blanks; also returns which strings need the fallback."""
    start, end = bounds(strings)
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


def _instants(strings: pa.StringArray, length: Indices, kind: pa.TimestampType) -> pa.Array:
    """Cast strings whose date and time have these lengths, without the zone; NULL may have any length."""
    if kind.tz or bool((length > 26).any()):
        start, end = bounds(strings)
        strings = slices(
            content(strings),
            start,
            np.minimum(end, start + np.clip(length, 0, 26)),
            np.asarray(strings.is_valid()),
            pa.string(),
        )
    return pc.cast(strings, pa.timestamp("us")).view(kind)


def _parse(strings: pa.StringArray, kind: pa.DataType, pattern: str) -> tuple[pa.Array, Mask]:
    """Cast strings; also returns which need the fallback: those that do not match a pattern, or all if a cast fails."""
    try:
        return pc.cast(strings, kind), _no_fallback(strings)
    except pa.ArrowInvalid:
        plain = _keep_matching(strings, pattern)
    try:
        return pc.cast(plain, kind), _unread(strings, plain)
    except pa.ArrowInvalid:  # a date of the year 0000
        return pa.nulls(len(strings), kind), np.asarray(strings.is_valid())


def _keep_with_bytes(strings: pa.StringArray, known: Mask) -> tuple[pa.StringArray, Mask]:
    """The strings that contain only known bytes (others become NULL), and which strings contain other bytes."""
    good = known.take(content(strings))
    fallback = np.zeros(len(strings), dtype=bool)
    if good.all():
        return strings, fallback
    fallback[np.searchsorted(bounds(strings)[1], np.flatnonzero(~good), side="right")] = True
    present = np.asarray(strings.is_valid())
    return _keep_only(strings, present & ~fallback), fallback & present


def _keep_matching(strings: pa.StringArray, pattern: str) -> pa.StringArray:
    """The strings that match a pattern; others become NULL."""
    return _keep_only(strings, np.asarray(pc.fill_null(pc.match_substring_regex(strings, pattern), False)))


def _keep_only(strings: pa.StringArray, keep: Mask) -> pa.StringArray:
    """The strings that a mask selects; others become NULL and have no bytes."""
    return slices(content(strings), *bounds(strings), keep, pa.string())


def _no_fallback(strings: pa.Array) -> Mask:
    """A mask in which no string needs the fallback."""
    return np.zeros(len(strings), dtype=bool)


def _unread(strings: pa.Array, values: pa.Array) -> Mask:
    """Which strings have no value, although they are not NULL."""
    return np.asarray(pc.and_(values.is_null(), strings.is_valid()))
