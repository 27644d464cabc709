"""The format ``maxwell-json``: changes as Maxwell writes them."""

from __future__ import annotations

from kdsl_formats.cdc_json.dialects import MAXWELL
from kdsl_formats.cdc_json.format import ChangeJson


class MaxwellJson(ChangeJson):
    """Changes as Maxwell writes them: ``data`` and ``old``, and ``type`` (Flink's format ``maxwell-json``)."""

    identifier = "maxwell-json"
    dialect = MAXWELL
    metadata = MAXWELL.types
