"""Change data as JSON, in the dialects of Debezium, Canal, Maxwell and Oracle GoldenGate."""

from __future__ import annotations

from kdsl_formats.cdc_json.canal import CanalJson
from kdsl_formats.cdc_json.debezium import DebeziumJson
from kdsl_formats.cdc_json.maxwell import MaxwellJson
from kdsl_formats.cdc_json.ogg import OggJson

__all__ = ["CanalJson", "DebeziumJson", "MaxwellJson", "OggJson"]
