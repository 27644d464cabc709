"""A format to be measured: messages of it, what reads and writes them, and the same rows as JSON for ``from_json``.

Each of the modules ``bench.formats_…`` gives the cases of its formats; `bench.formats` measures all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pyarrow as pa

from kdsl.formats import Decoder, Encoder
from kdsl.types import model as t


@attrs.frozen
class Case:
    """Messages of one format.

    Attributes:
        format: The format's name.
        messages: The messages.
        row: The columns.
        decoder: What reads them.
        encoder: What writes them again.
        texts: As many messages of JSON for ``from_json``, with the same rows (or, of change data, the same messages).
        schema: Their schema, as Spark's DDL.
        goal: How many times as fast as ``from_json`` reading should be, per message; None if nothing is aimed at.
        reference: The options of the reference engine's table, beside ``format``; None if it has no such format,
            or none that runs without generated code.
        variant: What is special about these messages.
    """

    format: str
    messages: pa.BinaryArray
    row: t.Row
    decoder: Decoder
    encoder: Encoder
    texts: list[str]
    schema: str
    goal: float | None = None
    reference: Mapping[str, str] | None = attrs.field(factory=dict)
    variant: str = ""

    @property
    def name(self) -> str:
        """The format, and what is special."""
        return f"{self.format}, {self.variant}" if self.variant else self.format

    def decode(self) -> Any:
        """All messages to rows."""
        return self.decoder.decode(self.messages)


def binary(texts: list[str]) -> pa.BinaryArray:
    """Texts as messages."""
    return pa.array([text.encode() for text in texts], pa.binary())
