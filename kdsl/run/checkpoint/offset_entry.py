"""An entry of Spark's offset log as lines. One can be replaced, and the others stay as they are.

The first line is the version of the log (``v1``, or ``v2``, in which sources have names), the second one metadata; then
a line for each source: its offsets, in ``v2`` after its name and a colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.errors import CheckpointError
from kdsl.run.offsets.stored import offset_document

_VERSIONS = ("v1", "v2")
_NAMED = re.compile(r"(?P<name>\w+):(?P<offsets>.*)", re.DOTALL)
_FIRST = 2


@attrs.frozen
class SourceLine:
    """The line of a source.

    Attributes:
        name: The name of the source, or its number, from 0 on, where Spark has no names.
        document: Its offsets; None if they are not a JSON object, as those of a source that has not begun.
        index: Which line it is.
        prefix: What is before the offsets.
        offsets: The offsets, as they are written.
    """

    name: str
    document: dict[str, Any] | None
    index: int
    prefix: str
    offsets: str

    def with_document(self, document: Mapping[str, Any]) -> str:
        """Write the line with other offsets, with the spaces that the present ones have."""
        compact = json.dumps(self.document, separators=(",", ":")) == self.offsets
        return self.prefix + json.dumps(document, separators=(",", ":") if compact else None)


def read_sources(text: str, place: str) -> list[SourceLine]:
    """Read the lines of the sources in an entry of the offset log.

    Args:
        text: The entry.
        place: Its file, for messages.
    """
    lines = text.split("\n")
    version = lines[0].strip()
    if version not in _VERSIONS:
        raise CheckpointError(
            f"{place} is an entry of version {version[:20]!r} of Spark's offset log, and this kdsl reads "
            f"{' and '.join(_VERSIONS)}; use a newer kdsl"
        )
    sources = []
    for index, line in enumerate(lines[_FIRST:], _FIRST):
        named = _NAMED.fullmatch(line) if version == "v2" else None
        prefix, offsets = ("", line) if named is None else (f"{named['name']}:", named["offsets"])
        name = str(index - _FIRST) if named is None else named["name"]
        sources.append(SourceLine(name, offset_document(offsets), index, prefix, offsets))
    return sources


def read_planned_time(text: str) -> float:
    """Return when the batch of an entry was planned, in seconds since 1970; 0 if the entry does not say it."""
    lines = text.split("\n")
    metadata = (offset_document(lines[1]) if len(lines) > 1 else None) or {}
    return float(metadata.get("batchTimestampMs", 0)) / 1000


def replace_line(text: str, index: int, line: str) -> str:
    """Return an entry with another line in place of one.

    Args:
        text: The entry.
        index: Which line.
        line: The new line.
    """
    lines = text.split("\n")
    lines[index] = line
    return "\n".join(lines)
