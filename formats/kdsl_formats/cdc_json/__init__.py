"""Change data as JSON, in the dialects of Debezium, Canal, Maxwell and Oracle GoldenGate."""

from __future__ import annotations

from kdsl_formats.cdc_json.formats import CanalJson, DebeziumJson, MaxwellJson, OggJson

__all__ = ["CanalJson", "DebeziumJson", "MaxwellJson", "OggJson"]
