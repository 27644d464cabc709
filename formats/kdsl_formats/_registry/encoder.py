"""Encodes rows with a schema of the registry: one that the format chooses, or one that a frame names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa

from kdsl.formats import Encoded, Encoder, Use
from kdsl_formats._registry.framing import add_frames
from kdsl_formats._registry.options import RegistryFormat

if TYPE_CHECKING:
    from kdsl.registry import RegistryClient, SubjectVersion


@attrs.frozen
class SchemaWriter:
    """Writes rows with one schema.

    Attributes:
        schema_id: The id of the schema in the registry.
        encode: Encodes rows, with their kinds, to bodies without a frame.
        indexes: Further bytes of the frame (`RegistryFormat.add_frames`).
    """

    schema_id: int
    encode: Callable[[pa.StructArray, pa.Array | None], Encoded]
    indexes: bytes = b""


class RegistryEncoder:
    """Encodes rows with a schema that is found or registered when the first rows are written.

    Args:
        chosen: The format.
        use: How it is used.
        find_writer: Finds or registers the schema, and returns what writes with it.
    """

    def __init__(self, chosen: RegistryFormat, use: Use, find_writer: Callable[[RegistryClient], SchemaWriter]) -> None:
        self._format, self._use, self._find_writer = chosen, use, find_writer
        self._writer: SchemaWriter | None = None

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows; those that the schema does not allow are bad records.

        The registry is asked in the first call that has rows, whose errors are those of ``find_writer``.
        """
        if not len(rows):
            return Encoded(pa.array([], pa.binary()))
        if self._writer is None:
            from kdsl.registry import registry_client

            self._writer = self._find_writer(registry_client(self._format.require_registry(self._use)))
        writer = self._writer
        return self._format.add_frames(writer.encode(rows, kinds), writer.schema_id, self._use, writer.indexes)


class FormEncoder:
    """Encodes rows as bodies after a frame, with the schema that the frame names.

    Args:
        frame: The frame.
        create: Creates the encoder of the bodies; it is called when the first rows are written.
    """

    def __init__(self, frame: bytes, create: Callable[[], Encoder]) -> None:
        self._frame, self._create = frame, create
        self._encoder: Encoder | None = None

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows; those that the schema does not allow are bad records. Errors are those of ``create``."""
        if self._encoder is None:
            self._encoder = self._create()
        encoded = self._encoder.encode(rows, kinds)
        return Encoded(add_frames(self._frame, encoded.messages), encoded.bad)


def describe_version(version: SubjectVersion, client: RegistryClient) -> str:
    """A version of a subject as a part of an error message."""
    return (
        f"the version {version.version} of the subject {version.subject!r} (id {version.id}) in the registry "
        f"{client.address}"
    )
