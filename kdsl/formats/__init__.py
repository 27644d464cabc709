"""The interface of formats, and the registry that finds a format by its name.

A format converts message bytes to rows and back. It is a group of options (typed constructor, Flink keys) that creates
a `Decoder` and an `Encoder` for a row type; both work on whole Arrow arrays. The formats themselves are plug-ins of the
entry-point group ``kdsl.formats``; those of kdsl are in the package ``kdsl_formats``.
"""

from __future__ import annotations

from kdsl.formats.batches import (
    ALONE,
    MAX_COLUMNS,
    READ_ONLY,
    ROW_KIND,
    ROW_KINDS,
    SCHEMA_HEADERS,
    SINK_HAS_ROWS,
    STATE_HAS_ROWS,
    UNAVAILABLE,
    BadRecord,
    Decoded,
    Direction,
    Encoded,
    LocatedMessages,
    Observed,
    RowKind,
    SchemaDelta,
    Side,
    TableId,
    Use,
    kind_column,
    unavailable_column,
)
from kdsl.formats.interface import (
    Decoder,
    Encoder,
    Format,
    LocatingDecoder,
    Observer,
    OnTruncate,
    OnUnavailable,
    RegistrySchemas,
    TableChangeEncoder,
)
from kdsl.formats.lookup import (
    FORMATS,
    UnknownFormatError,
    format_class,
    format_names,
)

__all__ = [
    "ALONE",
    "FORMATS",
    "MAX_COLUMNS",
    "READ_ONLY",
    "ROW_KIND",
    "ROW_KINDS",
    "SCHEMA_HEADERS",
    "SINK_HAS_ROWS",
    "STATE_HAS_ROWS",
    "UNAVAILABLE",
    "BadRecord",
    "Decoded",
    "Decoder",
    "Direction",
    "Encoded",
    "Encoder",
    "Format",
    "LocatedMessages",
    "LocatingDecoder",
    "Observed",
    "Observer",
    "OnTruncate",
    "OnUnavailable",
    "RegistrySchemas",
    "RowKind",
    "SchemaDelta",
    "Side",
    "TableChangeEncoder",
    "TableId",
    "UnknownFormatError",
    "Use",
    "format_class",
    "format_names",
    "kind_column",
    "unavailable_column",
]
