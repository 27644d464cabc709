"""The members of objects as columns of their own, whose names are joined by dots."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from kdsl_formats.json.errors import FieldError


def flatten_members(row: dict[str, Any], whole: Container[str]) -> dict[str, Any]:
    """The members of an object, with those of objects inside it in place of these, however deep.

    Args:
        row: The object.
        whole: The names of members that stay whole.

    Raises:
        FieldError: Two members have one name.
    """
    flat: dict[str, Any] = {}
    left = [(name, value) for name, value in reversed(row.items())]
    while left:
        name, value = left.pop()
        if isinstance(value, dict) and name not in whole:
            left += [(f"{name}.{inner}", below) for inner, below in reversed(value.items())]
        elif name in flat:
            raise FieldError(f"two members have the name {name!r} when nested columns are flattened")
        else:
            flat[name] = value
    return flat
