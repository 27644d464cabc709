"""Whole columns of texts to values, where a text has its plain shape.

Each function gives the values and the doubts: a mask of the texts whose meaning it does not know, which the caller asks
`numbers` or `temporal` about (their values here are NULL). What is not in doubt equals the judge's answer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._columns.arrays import Mask, Positions, bounds, content, pieces, validity

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
_BASE64 = np.full(256, 255, dtype=np.uint8)
_BASE64[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")] = np.arange(64)
_WIDEST = pa.decimal128(38, 18)


def integers(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Signed integers of any width; a ``+``, blanks and what is out of range are in doubt."""
    some, doubts = _of_bytes(texts, _INTEGER_BYTES)
    try:
        return pc.cast(some, kind), doubts
    except pa.ArrowInvalid:
        pass
    wide = pc.cast(_matching(texts, _INTEGER), pa.int64())
    bound = 1 << kind.bit_width - 1
    if kind.bit_width < 64:
        wide = pc.if_else(
            pc.and_(pc.greater_equal(wide, -bound), pc.less(wide, bound)), wide, pa.scalar(None, pa.int64())
        )
    return pc.cast(wide, kind), _lost(texts, wide)


def floats(texts: pa.StringArray, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """32-bit and 64-bit floats, rounded once; names (NaN, Infinity) and Java's endings are in doubt."""
    some, doubts = _of_bytes(texts, _FLOATING_BYTES)
    try:
        return pc.cast(some, kind), doubts
    except pa.ArrowInvalid:
        pass
    plain = _matching(texts, _FLOATING)
    return pc.cast(plain, kind), _lost(texts, plain)


def decimals(texts: pa.StringArray, kind: pa.Decimal128Type) -> tuple[pa.Array, Mask]:
    """Decimals, rounded half up to their scale; what has too many digits is NULL and not in doubt."""
    start, end = bounds(texts)
    present = np.asarray(texts.is_valid())
    # Arrow lets a number overflow unseen when its digits and the scale together are more than it has.
    odd = _of_bytes(texts, _DECIMAL_BYTES)[1] | (present & (end - start > t.MAX_DECIMAL - kind.scale))
    made = pa.nulls(len(texts), kind)
    try:
        made = pc.cast(_only(texts, present & ~odd) if odd.any() else texts, kind)
    except pa.ArrowInvalid:
        odd = present
    if not odd.any():
        return made, odd
    if kind.scale > _WIDEST.scale:
        return made, odd
    texts = _only(texts, odd)
    plain = _matching(texts, _DECIMAL)
    wide = pc.round(pc.cast(plain, _WIDEST), ndigits=kind.scale, round_mode="half_towards_infinity")
    whole = kind.precision - kind.scale
    if whole < _WIDEST.precision - _WIDEST.scale:
        bound = pa.scalar(10**whole, pa.decimal128(38, 0)).cast(_WIDEST)
        wide = pc.if_else(pc.less(pc.abs(wide), bound), wide, pa.scalar(None, _WIDEST))
    return pc.coalesce(made, pc.cast(wide, kind)), _lost(texts, plain)


def dates(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Dates as ``yyyy-MM-dd`` of the years 0001 to 9999."""
    return _parsed(texts, pa.date32(), f"^({_DAY})$")


def times(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Times as ``HH:mm:ss`` with up to nine digits of a fraction, to nanoseconds of the day."""
    plain = _matching(texts, rf"^{_CLOCK}:[0-5][0-9](\.[0-9]{{1,9}})?$")
    instants = pc.cast(pc.binary_join_element_wise("1970-01-01 ", plain, ""), pa.timestamp("ns"))
    return pc.cast(instants.view(pa.int64()), pa.time64("ns")), _lost(texts, plain)


def timestamps(texts: pa.StringArray, standard: str, *, zoned: bool) -> tuple[pa.Array, Mask]:
    """Timestamps as `temporal.parse_timestamp` reads them, to microseconds (finer digits are cut).

    Args:
        texts: ``yyyy-MM-dd HH:mm:ss[.fraction]`` for SQL, ``yyyy-MM-ddTHH:mm[:ss[.fraction]]`` for ISO-8601.
        standard: ``"SQL"`` or ``"ISO-8601"``.
        zoned: Whether each text ends with ``Z``; the values then have the zone UTC.
    """
    kind = pa.timestamp("us", tz="UTC") if zoned else pa.timestamp("us")
    iso = standard == "ISO-8601"
    start, end = bounds(texts)
    length = (end - start) - zoned
    data = content(texts)
    behind = max(len(data) - 1, 0)  # a short text is looked at like the others, and found too short
    if not len(data):
        return pa.nulls(len(texts), kind), np.asarray(texts.is_valid())
    present = np.asarray(texts.is_valid())
    shaped = (length >= 19) | ((length == 16) & iso)
    shaped &= data[np.minimum(start + 10, behind)] == (84 if iso else 32)
    if zoned:
        shaped &= data[end - 1] == 90
    if bool((length > 26).any()):
        for place in (26, 27, 28):
            shaped &= (length <= place) | (data[np.minimum(start + place, behind)] - 48 <= 9)
        shaped &= length <= 29
    doubts = present & ~shaped
    try:
        return _instants(_only(texts, shaped & present) if doubts.any() else texts, length, kind), doubts
    except pa.ArrowInvalid:
        pass
    seconds = r"(:[0-5][0-9](\.[0-9]{1,9})?)?" if iso else r":[0-5][0-9](\.[0-9]{1,9})?"
    plain = _matching(texts, f"^({_DAY}){'T' if iso else ' '}{_CLOCK}{seconds}{'Z' * zoned}$")
    return _instants(plain, length, kind), _lost(texts, plain)


def base64(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Bytes in base64 with padding and without blanks."""
    start, end = bounds(texts)
    length = end - start
    data = content(texts)
    ends = np.append(np.zeros(2, dtype=np.uint8), data)  # so that the last two bytes exist for an empty text
    pads = np.where(length > 0, (ends[end + 1] == 61).astype(np.int64) + ((ends[end] == 61) & (ends[end + 1] == 61)), 0)
    six = _BASE64.take(data)
    place = np.flatnonzero(six == 255)
    doubts = length % 4 != 0
    owner = np.searchsorted(end, place, side="right")
    wrong = (data[place] != 61) | (place < end[owner] - pads[owner])
    doubts[owner[wrong]] = True
    if doubts.any():
        present = np.asarray(texts.is_valid())
        return base64(_only(texts, present & ~doubts))[0], doubts & present
    six[place] = 0
    groups = six.reshape(-1, 4)
    made = np.empty((len(groups), 3), dtype=np.uint8)
    made[:, 0] = groups[:, 0] << 2 | groups[:, 1] >> 4
    made[:, 1] = groups[:, 1] << 4 | groups[:, 2] >> 2
    made[:, 2] = groups[:, 2] << 6 | groups[:, 3]
    flat = made.reshape(-1)
    size = length // 4 * 3
    if place.size:
        last = np.cumsum(size)
        kept = np.ones(len(flat), dtype=bool)
        kept[last[pads > 0] - 1] = False
        kept[last[pads > 1] - 2] = False
        flat = flat[kept]
    offsets = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum(size - pads, out=offsets[1:])
    buffers = [validity(texts), pa.py_buffer(offsets), pa.py_buffer(flat)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers), doubts


def _instants(texts: pa.StringArray, length: Positions, kind: pa.TimestampType) -> pa.Array:
    """Cast texts whose date and time have these lengths, without the zone; a NULL may have any length."""
    if kind.tz or bool((length > 26).any()):
        start, end = bounds(texts)
        texts = pieces(
            content(texts),
            start,
            np.minimum(end, start + np.clip(length, 0, 26)),
            np.asarray(texts.is_valid()),
            pa.string(),
        )
    return pc.cast(texts, pa.timestamp("us")).view(kind)


def _parsed(texts: pa.StringArray, kind: pa.DataType, pattern: str) -> tuple[pa.Array, Mask]:
    try:
        return pc.cast(texts, kind), _none(texts)
    except pa.ArrowInvalid:
        plain = _matching(texts, pattern)
    try:
        return pc.cast(plain, kind), _lost(texts, plain)
    except pa.ArrowInvalid:  # a date of the year 0000
        return pa.nulls(len(texts), kind), np.asarray(texts.is_valid())


def _of_bytes(texts: pa.StringArray, known: Mask) -> tuple[pa.StringArray, Mask]:
    """The texts that hold only known bytes, and which others there are."""
    good = known.take(content(texts))
    doubts = np.zeros(len(texts), dtype=bool)
    if good.all():
        return texts, doubts
    doubts[np.searchsorted(bounds(texts)[1], np.flatnonzero(~good), side="right")] = True
    present = np.asarray(texts.is_valid())
    return _only(texts, present & ~doubts), doubts & present


def _matching(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    return _only(texts, np.asarray(pc.fill_null(pc.match_substring_regex(texts, pattern), False)))


def _only(texts: pa.StringArray, keep: Mask) -> pa.StringArray:
    """The texts that a mask picks, and NULL, with no bytes behind it, for all others."""
    return pieces(content(texts), *bounds(texts), keep, pa.string())


def _none(texts: pa.Array) -> Mask:
    return np.zeros(len(texts), dtype=bool)


def _lost(texts: pa.Array, made: pa.Array) -> Mask:
    return np.asarray(pc.and_(made.is_null(), texts.is_valid()))
