"""Which Arrow types of other libraries can be cast to those of a table without loss, and the cast."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as p

from kdsl.types.arrow import cast_array

_BYTES = (p.is_binary, p.is_large_binary, p.is_binary_view, p.is_fixed_size_binary)
_TEXTS = (p.is_string, p.is_large_string, p.is_string_view)
_LISTS = (p.is_list, p.is_large_list, p.is_fixed_size_list, p.is_list_view, p.is_large_list_view)
_WIDEST = 38


def can_cast(got: pa.DataType, want: pa.DataType) -> bool:
    """Return whether a type can be cast to another without loss; whether each value fits, the cast checks.

    Integers become other numbers, times other units; nothing becomes a string, and a string nothing else. A timestamp
    with a time zone does not become one without, or the other way round.
    """
    if got.equals(want) or p.is_null(got):
        return True
    if p.is_dictionary(got):
        return can_cast(got.value_type, want)
    if p.is_struct(want):
        return p.is_struct(got) and _can_cast_members(got, want)
    if p.is_map(want):
        return bool(p.is_map(got) and can_cast(got.key_type, want.key_type) and can_cast(got.item_type, want.item_type))
    if p.is_list(want):
        return any(same(got) for same in _LISTS) and can_cast(got.value_type, want.value_type)
    if p.is_timestamp(want):
        return bool(p.is_timestamp(got) and (got.tz is None) == (want.tz is None))
    if p.is_floating(want):
        return bool(p.is_integer(got) or (p.is_floating(got) and got.bit_width <= want.bit_width))
    if p.is_decimal(want):
        return bool(p.is_integer(got) or p.is_decimal(got))
    for wanted, accepted in (
        (p.is_string, _TEXTS),
        (p.is_binary, _BYTES),
        (p.is_integer, (p.is_integer,)),
        (p.is_date, (p.is_date,)),
        (p.is_time, (p.is_time,)),
    ):
        if wanted(want):
            return any(same(got) for same in accepted)
    return False


def _can_cast_members(got: pa.StructType, want: pa.StructType) -> bool:
    """Return whether the members of a struct can be cast to those of another, matched by name."""
    have, wanted = {field.name: field for field in got}, {field.name: field for field in want}
    return have.keys() <= wanted.keys() and all(
        can_cast(have[name].type, field.type) if name in have else field.nullable for name, field in wanted.items()
    )


def cast_exactly(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to a type for which `can_cast` is true; a value that would change raises Arrow's error."""
    if p.is_dictionary(array.type):
        array = array.dictionary_decode()
    if p.is_integer(array.type) and p.is_decimal(kind):
        array = array.cast(pa.decimal128(_WIDEST, kind.scale))
    return cast_array(array, kind)
