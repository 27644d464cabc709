"""A format to measure: its messages, decoder and encoder, and the same rows as JSON for ``from_json``.

Each module ``bench.formats_…`` has the cases of its formats; `bench.formats` measures all of them.
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
        decoder: Decodes the messages.
        encoder: Encodes the rows again.
        strings: The same number of JSON messages for ``from_json``, with the same rows (for change data, the same
            messages).
        schema: Their schema, as Spark's DDL.
        goal: The wanted speed of decoding relative to ``from_json``, per message; None if there is no goal.
        reference: The options of the reference engine's table, besides ``format``; None if it does not support the
            format without generated code.
        variant: The special property of these messages.
    """

    format: str
    messages: pa.BinaryArray
    row: t.Row
    decoder: Decoder
    encoder: Encoder
    strings: list[str]
    schema: str
    goal: float | None = None
    reference: Mapping[str, str] | None = attrs.field(factory=dict)
    variant: str = ""

    @property
    def name(self) -> str:
        """The format and the variant."""
        return f"{self.format}, {self.variant}" if self.variant else self.format

    def decode(self) -> Any:
        """Decode all messages."""
        return self.decoder.decode(self.messages)


def binary(strings: list[str]) -> pa.BinaryArray:
    """Encode strings as messages."""
    return pa.array([text.encode() for text in strings], pa.binary())
