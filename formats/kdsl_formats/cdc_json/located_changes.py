"""Changes whose members the observer has located, so that the decoder of their table does not look for them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kdsl_formats._columns.arrays import Indices
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules
from kdsl_formats.cdc_json.row_locations import RowLocations
from kdsl_formats.json.buffer import MessageBuffer
from kdsl_formats.json.objects import ABSENT, FoundMembers, UndeclaredMembers, ValueSpans, absent_values


@attrs.frozen(eq=False)
class LocatedObjects:
    """Objects with the rows of changes, and their members.

    Attributes:
        objects: The objects, as indices of those that contain rows, or of those with old values; ascending.
        names: The names of all members that any of them has.
        members: Their members, in the order of the names.
    """

    objects: Indices
    names: Sequence[str]
    members: FoundMembers

    def select(self, names: Sequence[bytes]) -> FoundMembers:
        """The members with some names, in this order, with absent values for those that no object has.

        The others are undeclared.
        """
        columns = dict(zip((name.encode() for name in self.names), self.members.columns, strict=True))
        others = [(name, columns[name].form != ABSENT) for name in columns.keys() - set(names)]
        undeclared = tuple(UndeclaredMembers([key], self.members.which[has]) for key, has in others if has.any())
        absent = absent_values(len(self.members.which))
        return attrs.evolve(self.members, columns=[columns.get(name, absent) for name in names], undeclared=undeclared)


@attrs.frozen(eq=False)
class LocatedChanges:
    """Changes of one table, which the observer has located in its buffer.

    Attributes:
        rules: How the observer reads changes.
        buffer: The buffer; all of this is valid as long as it is.
        messages: The message of each change, ascending.
        changes: The indices of the changes among all that were located in the buffer, ascending.
        members: The members of all these, by name.
        locations: The rows of all these.
        images: The objects with the rows of the changes.
        old_values: The objects with their old values.
    """

    rules: ChangeReadingRules
    buffer: MessageBuffer
    messages: Indices
    changes: Indices
    members: Mapping[str, ValueSpans]
    locations: RowLocations
    images: LocatedObjects | None
    old_values: LocatedObjects | None

    def suits(self, rules: ChangeReadingRules, names: Sequence[str]) -> bool:
        """Whether a decoder with some rules, which looks for some members of changes, would locate the same."""
        own = self.rules
        return (
            self.buffer.is_valid
            and all(name in self.members for name in names)
            and (own.dialect, own.include, own.skipped) == (rules.dialect, rules.include, rules.skipped)
            and not any(each.payload or each.key_row is not None for each in (own, rules))
        )

    def locate(self) -> RowLocations | None:
        """The rows of the changes, with the objects of `images` and `old_values`; None if it has others."""
        picked, images, old_values = self.locations.pick(self.changes)
        for objects, located in ((images, self.images), (old_values, self.old_values)):
            if not np.array_equal(objects, located.objects if located is not None else objects[:0]):
                return None
        return picked
