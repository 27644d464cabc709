"""Record metadata to columns: the fields of a raw record batch, and their casts to the types of the columns (MD-5).

The raw batch has Kafka's record as it came, one row per record (`RAW`); `kdsl.run.records.decode` makes a table's rows
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.metadata import METADATA
from kdsl.plan.model import MetadataColumn
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type

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

``timestamp`` is milliseconds since the epoch (-1: the record has none), ``timestamp_type`` the protocol number: -1 for
none, 0 for the producer's time, 1 for the broker's. ``leader_epoch`` is null where the broker tells none.
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
_MOST_MILLIS = np.iinfo(np.int64).max // 1000

Array = np.ndarray[Any, np.dtype[Any]]


@attrs.frozen
class BadMetadataError(Exception):
    """Metadata that does not fit the type of its column.

    Attributes:
        row: The first such record of the batch.
        reason: Why it does not fit.
        more: How many further records have the same trouble.
    """

    row: int
    reason: str
    more: int = 0


def field_of(key: str) -> str:
    """The field of the raw batch from which a metadata key is read."""
    return _FIELDS.get(key, key)


def metadata_array(raw: pa.Array, column: MetadataColumn, zone: str = "UTC") -> pa.Array:
    """A metadata column of a batch.

    Args:
        raw: The field of the raw batch (`field_of`).
        column: What is shown, and as what type.
        zone: The time zone in which an instant is shown as a wall-clock time, a date or a text.

    Raises:
        BadMetadataError: A value does not fit, as an offset that overflows INT.
    """
    makers: Mapping[str, Callable[[pa.Array], pa.Array]] = {
        "timestamp": lambda a: _instants(a, nullable=column.type.nullable),
        "timestamp-type": _timestamp_types,
        "headers": _header_map,
    }
    made = makers.get(column.key, lambda a: a)(raw)
    return shown_as(made, METADATA[column.key].type, column.type, zone)


def _instants(millis: pa.Array, *, nullable: bool) -> pa.Array:
    """Milliseconds as microseconds; what is absent or out of reach is NULL, or the nearest instant there is."""
    values = millis.to_numpy(zero_copy_only=False)
    if len(values) and (values.min() <= NO_TIMESTAMP or values.max() > _MOST_MILLIS):
        lost = (values == NO_TIMESTAMP) | (values > _MOST_MILLIS) | (values < -_MOST_MILLIS)
        made = pa.array(np.clip(values, -_MOST_MILLIS, _MOST_MILLIS) * 1000, mask=lost if nullable else None)
    else:
        made = pa.array(values * 1000)
    return made.view(_INSTANT)


def _timestamp_types(codes: pa.Array) -> pa.Array:
    return pa.array(TIMESTAMP_TYPES, pa.string()).take(pc.add(codes.cast(pa.int32()), 1))


def _header_map(headers: pa.Array) -> pa.Array:
    """Header lists as maps; of a repeated name the last one counts (MD-8)."""
    entries = headers.flatten()
    names, values = entries.field("key"), entries.field("value")
    sizes = headers.value_lengths().to_numpy(zero_copy_only=False)
    if len(entries) > 0 and sizes.max() > 1:
        of = np.repeat(np.arange(len(headers)), sizes)
        codes = names.dictionary_encode()
        seen = of * len(codes.dictionary) + codes.indices.to_numpy(zero_copy_only=False)
        last = len(seen) - 1 - np.unique(seen[::-1], return_index=True)[1]
        if len(last) < len(seen):
            last.sort()
            names, values = names.take(pa.array(last)), values.take(pa.array(last))
            sizes = np.bincount(of[last], minlength=len(headers))
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.MapArray.from_arrays(offsets, names, values)


def shown_as(array: pa.Array, kind: t.DataType, to: t.DataType, zone: str) -> pa.Array:
    """Metadata of one column type as another, for the pairs that the resolver lets pass.

    Raises:
        BadMetadataError: A value does not fit.
    """
    match kind, to:
        case t.TimestampLtz(), _:
            return _cast_instant(array, to, zone)
        case t.Map(), t.Map():
            keys = shown_as(array.keys, kind.key, to.key, zone)
            items = shown_as(array.items, kind.value, to.value, zone)
            return _null_like(array, pa.MapArray.from_arrays(array.offsets, keys, items, type=arrow_type(to)))
        case t.Array(), t.Array():
            elements = shown_as(array.values, kind.element, to.element, zone)
            return _null_like(array, pa.ListArray.from_arrays(array.offsets, elements, type=arrow_type(to)))
        case t.Row(), t.Row():
            pairs = zip(kind.fields, to.fields, strict=True)
            members = [shown_as(array.field(i), a.type, b.type, zone) for i, (a, b) in enumerate(pairs)]
            made = pa.StructArray.from_arrays(members, fields=[arrow_field(f.name, f.type) for f in to.fields])
            return _null_like(array, made)
        case t.VarBinary(), t.Char() | t.VarChar():
            return _texts(array)
        case t.Int() | t.BigInt(), t.Float() | t.Double() | t.Char() | t.VarChar():
            return array.cast(arrow_type(to), safe=False)
        case t.Int() | t.BigInt(), _ if array.type != arrow_type(to):
            return _cast_number(array, to)
        case _:
            return array


def _null_like(array: pa.Array, made: pa.Array) -> pa.Array:
    """What was made of an array, NULL where that is."""
    if not array.null_count:
        return made
    return made.take(pa.array(np.arange(len(made)), mask=np.asarray(array.is_null())))


def _texts(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:  # bytes that are no UTF-8 show as U+FFFD, as in the reference
        texts = (None if value is None else value.decode("utf-8", "replace") for value in array.to_pylist())
        return pa.array(texts, pa.string())


def _cast_number(array: pa.Array, to: t.DataType) -> pa.Array:
    try:
        if isinstance(to, t.Decimal):
            return array.cast(pa.decimal128(38, 0)).cast(arrow_type(to))
        return array.cast(arrow_type(to))
    except pa.ArrowInvalid:
        if isinstance(to, t.Decimal):
            most = 10 ** (to.precision - to.scale) - 1
        else:
            most = int(np.iinfo(arrow_type(to).to_pandas_dtype()).max)
        numbers = array.to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(numbers > most)
        reason = f"{int(numbers[rows[0]])} does not fit {to.spelling}, whose largest value is {most}"
        raise BadMetadataError(int(rows[0]), reason, len(rows) - 1) from None


def _cast_instant(array: pa.Array, to: t.DataType, zone: str) -> pa.Array:
    match to:
        case t.TimestampLtz(precision=precision):
            return _truncated(array, precision)
        case t.Timestamp(precision=precision):
            return _truncated(_wall_clock(array, zone), precision)
        case t.Date():
            return pc.floor_temporal(_wall_clock(array, zone), unit="day").cast(pa.date32())
        case _:
            millis = pc.floor_temporal(_wall_clock(array, zone), unit="millisecond").cast(pa.timestamp("ms"))
            return pc.strftime(millis, format="%Y-%m-%d %H:%M:%S")


def _wall_clock(array: pa.Array, zone: str) -> pa.Array:
    if zone in ("UTC", "Etc/UTC", "Z", "GMT"):
        return array.view(pa.int64()).view(pa.timestamp("us"))
    return pc.local_timestamp(array.cast(pa.timestamp("us", tz=zone)))


def _truncated(array: pa.Array, precision: int) -> pa.Array:
    """Fractions of a second beyond the precision are cut off; milliseconds are all there is."""
    if precision >= 3:
        return array
    ticks = array.view(pa.int64())
    size = 10 ** (6 - precision)
    floored = ticks.to_numpy(zero_copy_only=False) if ticks.null_count == 0 else ticks.fill_null(0).to_numpy()
    mask = None if ticks.null_count == 0 else ticks.is_null().to_numpy(zero_copy_only=False)
    return pa.array(floored // size * size, mask=mask).view(array.type)
