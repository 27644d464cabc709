"""The format ``ogg-json``: changes as Oracle GoldenGate writes them."""

from __future__ import annotations

from kdsl_formats.cdc_json.dialects import OGG
from kdsl_formats.cdc_json.format import ChangeJson


class OggJson(ChangeJson):
    """Changes as GoldenGate writes them: ``before``, ``after`` and ``op_type`` (Flink's format ``ogg-json``)."""

    identifier = "ogg-json"
    dialect = OGG
    metadata = OGG.types
