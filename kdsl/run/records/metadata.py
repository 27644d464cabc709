"""Converts record metadata to columns: the fields of a raw record batch, and their casts to column types (MD-5).

A raw batch contains Kafka's records unchanged, one row per record (`RAW`); `kdsl.run.records.decode` decodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.metadata import METADATA
from kdsl.plan.model import MetadataColumn
from kdsl.shown_values import reveal_values, show_value
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type, cast_array
from kdsl.types.zones import find_offset, region_name

HEADERS = pa.list_(
    pa.field(
        "element", pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]), False
    )
)
RAW: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "timestamp_type": pa.int8(),
    "leader_epoch": pa.int32(),
    "headers": HEADERS,
    "key": pa.binary(),
    "value": pa.binary(),
}
"""The fields of a raw record batch.

``timestamp`` is milliseconds since 1970 (-1: the record has none), ``timestamp_type`` the protocol's number: -1 for
none, 0 for the producer's time, 1 for the broker's. ``leader_epoch`` is null if the broker does not report it.
"""

NO_TIMESTAMP = -1
TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_FIELDS = {
    "header-list": "headers",
    "leader-epoch": "leader_epoch",
    "timestamp-type": "timestamp_type",
    "__raw_key__": "key",
    "__raw_value__": "value",
}
_INSTANT = pa.timestamp("us", tz="UTC")
_MAX_MILLIS = np.iinfo(np.int64).max // 1000

Array = np.ndarray[Any, np.dtype[Any]]


@attrs.frozen
class BadMetadataError(Exception):
    """Metadata that does not fit the type of its column.

    Attributes:
        rows: The indices of such records of the batch, ascending.
        marked_reason: Why the first of them does not fit, with its value marked (`kdsl.shown_values`).
    """

    rows: tuple[int, ...]
    marked_reason: str = attrs.field(alias="reason")

    @property
    def reason(self) -> str:
        """Why the first of them does not fit, with its value."""
        return reveal_values(self.marked_reason)


def field_of(key: str) -> str:
    """Return the field of the raw batch that contains a metadata key; a key without another name is its own field."""
    return _FIELDS.get(key, key)


def build_metadata_column(raw: pa.Array, column: MetadataColumn, zone: str = "UTC") -> pa.Array:
    """Build a metadata column of a batch.

    Args:
        raw: The field of the raw batch (`field_of`).
        column: The metadata key and the type of the column.
        zone: The time zone in which an instant is converted to a wall-clock time, a date or a string.
    """
    converters: Mapping[str, Callable[[pa.Array], pa.Array]] = {
        "timestamp": lambda a: _convert_to_instants(a, nullable=column.type.nullable),
        "timestamp-type": _timestamp_types,
        "headers": _convert_header_map,
    }
    array = converters.get(column.key, lambda a: a)(raw)
    return convert_metadata(array, METADATA[column.key].type, column.type, zone)


def _convert_to_instants(millis: pa.Array, *, nullable: bool) -> pa.Array:
    """Convert milliseconds to instants in microseconds.

    A missing timestamp (-1) and those beyond 64 bits become NULL if ``nullable``; otherwise -1 is taken as it is, and
    the others become the nearest instant that fits.
    """
    values = millis.to_numpy(zero_copy_only=False)
    if len(values) and (values.min() <= NO_TIMESTAMP or values.max() > _MAX_MILLIS):
        lost = (values == NO_TIMESTAMP) | (values > _MAX_MILLIS) | (values < -_MAX_MILLIS)
        micros = pa.array(np.clip(values, -_MAX_MILLIS, _MAX_MILLIS) * 1000, mask=lost if nullable else None)
    else:
        micros = pa.array(values * 1000)
    return micros.view(_INSTANT)


def _timestamp_types(codes: pa.Array) -> pa.Array:
    """Return the names of timestamp types (`TIMESTAMP_TYPES`) for the protocol's numbers -1, 0 and 1."""
    return pa.array(TIMESTAMP_TYPES, pa.string()).take(pc.add(codes.cast(pa.int32()), 1))


def _convert_header_map(headers: pa.Array) -> pa.Array:
    """Convert header lists to maps; if a name is repeated, the last value wins (MD-8)."""
    entries = headers.flatten()
    names, values = entries.field("key"), entries.field("value")
    sizes = headers.value_lengths().to_numpy(zero_copy_only=False)
    if len(entries) > 0 and sizes.max() > 1:
        record_of = np.repeat(np.arange(len(headers)), sizes)
        codes = names.dictionary_encode()
        seen = record_of * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
        last = len(seen) - 1 - np.unique(seen[::-1], return_index=True)[1]
        if len(last) < len(seen):
            last.sort()
            names, values = names.take(pa.array(last)), values.take(pa.array(last))
            sizes = np.bincount(record_of[last], minlength=len(headers))
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, names, values)


def convert_metadata(array: pa.Array, kind: t.DataType, to: t.DataType, zone: str) -> pa.Array:
    """Convert metadata of the type ``kind`` to another, for the pairs of types that the resolver allows.

    Instants become wall-clock times, dates or strings in the time zone; bytes become strings, with U+FFFD where they
    are not UTF-8; integers become numbers of the other type or strings. Elements of maps, arrays and rows are converted
    in the same way; other values are returned unchanged.
    """
    match kind, to:
        case t.TimestampLtz(), _:
            return _cast_instant(array, to, zone)
        case t.Map(), t.Map():
            keys = convert_metadata(array.keys, kind.key, to.key, zone)
            items = convert_metadata(array.items, kind.value, to.value, zone)
            return _null_like(array, pa.MapArray.from_arrays(array.offsets, keys, items, type=arrow_type(to)))
        case t.Array(), t.Array():
            elements = convert_metadata(array.values, kind.element, to.element, zone)
            return _null_like(array, pa.ListArray.from_arrays(array.offsets, elements, type=arrow_type(to)))
        case t.Row(), t.Row():
            pairs = zip(kind.fields, to.fields, strict=True)
            members = [convert_metadata(array.field(i), a.type, b.type, zone) for i, (a, b) in enumerate(pairs)]
            rows = pa.StructArray.from_arrays(members, fields=[arrow_field(f.name, f.type) for f in to.fields])
            return _null_like(array, rows)
        case t.VarBinary(), t.Char() | t.VarChar():
            return _decode_strings(array)
        case t.Int() | t.BigInt(), t.Float() | t.Double() | t.Char() | t.VarChar():
            return array.cast(arrow_type(to), safe=False)
        case t.Int() | t.BigInt(), _ if array.type != arrow_type(to):
            return _cast_number(array, to)
        case _:
            return array


def _null_like(array: pa.Array, converted: pa.Array) -> pa.Array:
    """Return the converted elements of an array, NULL where the array is NULL."""
    if not array.null_count:
        return converted
    return converted.take(pa.array(np.arange(len(converted)), mask=np.asarray(array.is_null())))


def _decode_strings(array: pa.Array) -> pa.Array:
    """Decode bytes as UTF-8; invalid bytes become U+FFFD."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:  # invalid UTF-8 becomes U+FFFD, as in Flink
        texts = (None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist())
        return pa.array(texts, pa.string())


def _cast_number(array: pa.Array, to: t.DataType) -> pa.Array:
    """Cast integers to the column's type, an integer or a decimal."""
    try:
        wide = array.cast(pa.decimal128(38, 0)) if isinstance(to, t.Decimal) else array
        return cast_array(wide, arrow_type(to))
    except pa.ArrowInvalid:
        if isinstance(to, t.Decimal):
            maximum = 10 ** (to.precision - to.scale) - 1
            minimum = -maximum
        else:
            limits = np.iinfo(arrow_type(to).to_pandas_dtype())
            minimum, maximum = int(limits.min), int(limits.max)
        numbers = array.fill_null(0).to_numpy(zero_copy_only=False)  # integers also with NULLs; 0 fits every type
        rows = np.flatnonzero((numbers < minimum) | (numbers > maximum))
        reason = (
            f"{show_value(int(numbers[rows[0]]))} does not fit {to.spelling}, whose values are {minimum} to {maximum}"
        )
        raise BadMetadataError(tuple(rows.tolist()), reason) from None


def _cast_instant(array: pa.Array, to: t.DataType, zone: str) -> pa.Array:
    """Convert instants to a timestamp, a date, or for other types a string without a fraction, in a time zone.

    Fractions beyond the precision of the type are cut off.
    """
    match to:
        case t.TimestampLtz(precision=precision):
            return _truncate(array, precision)
        case t.Timestamp(precision=precision):
            return _truncate(_wall_clock(array, zone), precision)
        case t.Date():
            return pc.floor_temporal(_wall_clock(array, zone), unit="day").cast(pa.date32())
        case _:
            millis = pc.floor_temporal(_wall_clock(array, zone), unit="millisecond").cast(pa.timestamp("ms"))
            return pc.strftime(millis, format="%Y-%m-%d %H:%M:%S")


def _wall_clock(array: pa.Array, zone: str) -> pa.Array:
    """Return the wall-clock time of instants in a time zone; pa.ArrowInvalid if it is unknown."""
    offset = find_offset(zone)
    if offset is None:
        return pc.local_timestamp(array.cast(pa.timestamp("us", tz=region_name(zone))))
    ticks = array.view(pa.int64())
    if offset:
        ticks = pc.add_checked(ticks, offset // timedelta(microseconds=1))
    return ticks.view(pa.timestamp("us"))


def _truncate(array: pa.Array, precision: int) -> pa.Array:
    """Cut off digits of the second beyond the precision, towards the past.

    The values have milliseconds only, so the array itself is returned for a precision of 3 or more.
    """
    if precision >= 3:
        return array
    ticks = array.view(pa.int64())
    size = 10 ** (6 - precision)
    floored = ticks.to_numpy(zero_copy_only=False) if ticks.null_count == 0 else ticks.fill_null(0).to_numpy()
    mask = None if ticks.null_count == 0 else ticks.is_null().to_numpy(zero_copy_only=False)
    return pa.array(floored // size * size, mask=mask).view(array.type)
