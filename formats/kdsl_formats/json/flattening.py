"""The members of objects as columns of their own, whose names are joined by dots."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from kdsl.shown_values import quote_value
from kdsl_formats._columns.arrays import Indices
from kdsl_formats.json.buffer import BRACE, MessageBuffer, Spans
from kdsl_formats.json.errors import FieldError
from kdsl_formats.json.members import BARE, TEXT
from kdsl_formats.json.objects import ABSENT, FoundMembers, ObjectFinder, ValueSpans
from kdsl_formats.json.validity import are_json


def flatten_members(row: dict[str, Any], whole: Container[str], needed: Container[str] | None = None) -> dict[str, Any]:
    """The members of an object, with those of objects inside it in place of these, however deep (``a.b.c``).

    An empty object has no members, so it is left out. Of members with the same name that is not needed, the last one is
    returned.

    Args:
        row: The object.
        whole: The full names (``a.b``) of objects that stay whole.
        needed: The names that are needed; by default all.
    """
    flat: dict[str, Any] = {}
    left = [(name, value) for name, value in reversed(row.items())]
    while left:
        name, value = left.pop()
        if isinstance(value, dict) and name not in whole:
            left += [(f"{name}.{inner}", below) for inner, below in reversed(value.items())]
        elif name in flat and (needed is None or name in needed):
            raise FieldError(f"two members have the name {quote_value(name)} when nested columns are flattened")
        else:
            flat[name] = value
    return flat


class FlatFinder:
    """Finds the members of objects whose names are paths, in many objects at once; as `ObjectFinder` otherwise.

    An object with a member whose own name has a dot, and may be one of the paths, needs the fallback.

    Args:
        names: The names of the columns: members, or paths of members inside objects.
        whole: The full names (with `prefix`) of objects that stay whole.
        min_batch: See `ObjectFinder`.
        prefix: The path of the objects, with a dot at its end.
    """

    def __init__(self, names: Sequence[str], whole: frozenset[str], *, min_batch: int, prefix: str = "") -> None:
        self._columns = {name: i for i, name in enumerate(names)}
        self._whole, self._prefix = whole, prefix
        inner: dict[str, list[str]] = {}
        self._dotted: set[str] = set()
        for name in names:
            steps = name.split(".")
            self._dotted.update(".".join(steps[:count]) for count in range(2, len(steps) + 1))
            if len(steps) > 1 and prefix + steps[0] not in whole:
                inner.setdefault(steps[0], []).append(name)
        self._inner = {
            head: (
                [self._columns[name] for name in paths],
                FlatFinder(
                    [name.removeprefix(f"{head}.") for name in paths],
                    whole,
                    min_batch=min_batch,
                    prefix=f"{prefix}{head}.",
                ),
            )
            for head, paths in inner.items()
        }
        self._names = tuple(dict.fromkeys([*names, *inner, *sorted(self._dotted)]))
        self._finder = ObjectFinder(self._names, all_needed=False, min_batch=min_batch)

    @property
    def find_undeclared(self) -> bool:
        """See `ObjectFinder.find_undeclared`. Undeclared members inside others are not found."""
        return self._finder.find_undeclared

    @find_undeclared.setter
    def find_undeclared(self, find: bool) -> None:
        """Set whether later searches find undeclared members; those inside other members are not found."""
        self._finder.find_undeclared = find

    def find(self, buffer: MessageBuffer, objects: Spans, first: Indices | None = None) -> FoundMembers:
        """Locate each column's value in each object, as `ObjectFinder.find` does.

        A column does not get an object, unless it stays whole: its value is absent then. Objects also need the fallback
        if a value in them that is not read is not JSON, or if a member's own name has the dots of a nested column.
        """
        members = self._finder.find(buffer, objects, first)
        count = len(members.which)
        good = np.ones(count, dtype=bool)
        nothing = np.zeros(count, dtype=np.int64)
        absent = ValueSpans(Spans(nothing, nothing), np.zeros(count, dtype=np.int8))
        columns = [absent] * len(self._columns)
        for name, values in zip(self._names, members.columns, strict=True):
            if name in self._dotted:
                good &= values.form == ABSENT
                continue
            nested = (values.form == BARE) & (buffer.data[values.spans.start] == BRACE)
            if self._prefix + name in self._whole:
                nested[:] = False
            unread = nested if name in self._columns else values.form != ABSENT
            if name in self._inner and nested.any():
                unread = unread & ~nested
                indexes, finder = self._inner[name]
                indices = np.flatnonzero(nested)
                some = values.pick(indices)
                inside = finder.find(buffer, some.spans, some.first)
                good[indices[inside.fallback]] = False
                for index, inner_values in zip(indexes, inside.columns, strict=True):
                    columns[index] = inner_values.spread(indices[inside.which], count)
            if unread.any():
                for form in (TEXT, BARE):
                    good &= are_json(buffer, values.spans, form, unread & (values.form == form))
            if name in self._columns:
                form_read = np.where(nested, np.int8(ABSENT), values.form)
                columns[self._columns[name]] = ValueSpans(values.spans, form_read, values.first)
        if good.all():
            return FoundMembers(members.which, columns, members.fallback, members.undeclared)
        fallback = np.sort(np.concatenate([members.fallback, members.which[~good]]))
        return FoundMembers(
            members.which[good], [values.pick(good) for values in columns], fallback, members.undeclared
        )
