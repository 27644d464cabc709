"""What was inferred of a topic, as a value that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs

from kdsl.formats import Format, format_class
from kdsl.types import model as t
from kdsl.types.parse import parse_type


@attrs.frozen
class SideSchema:
    """One side of the messages of a topic.

    Attributes:
        format: The format that reads it, without the address and the login of a registry.
        columns: The columns; their names are those in the messages.
    """

    format: Format
    columns: tuple[t.Field, ...]

    def document(self) -> dict[str, Any]:
        """Return the format, its options and the columns as a document that can be written as JSON."""
        columns = [
            {"name": f.name, "type": str(f.type)} | ({} if f.comment is None else {"comment": f.comment})
            for f in self.columns
        ]
        return {"format": self.format.identifier, "options": self.format.to_strings(), "columns": columns}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Create it from what `document` returned; other documents raise errors of any type, such as KeyError."""
        columns = (t.Field(c["name"], parse_type(c["type"]), c.get("comment")) for c in document["columns"])
        return cls(format_class(document["format"]).from_strings(document["options"]), tuple(columns))


@attrs.frozen
class TopicSchema:
    """What was inferred of a topic.

    Attributes:
        value: The message value.
        key: The message key; None where records have none, and where it was not looked at.
        upserts: Whether each record is the current row of its key.
        source: What it was inferred from, as "the newest 300 records of 3 partitions".
        notes: What a reader should know about it.
    """

    value: SideSchema
    key: SideSchema | None = None
    upserts: bool = False
    source: str = ""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as a document that can be written as JSON."""
        return {
            "value": self.value.document(),
            "key": None if self.key is None else self.key.document(),
            "upserts": self.upserts,
            "source": self.source,
            "notes": list(self.notes),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Create it from what `document` returned; other documents raise errors of any type, such as KeyError."""
        key = document["key"]
        return cls(
            SideSchema.from_document(document["value"]),
            None if key is None else SideSchema.from_document(key),
            bool(document["upserts"]),
            str(document["source"]),
            tuple(map(str, document["notes"])),
        )
