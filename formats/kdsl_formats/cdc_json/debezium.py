"""The format ``debezium-json``: changes as Debezium's connectors write them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kdsl.errors import Problem
from kdsl.formats import ALONE, Direction, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.cdc_json.dialects import DEBEZIUM
from kdsl_formats.cdc_json.format import ChangeJson
from kdsl_formats.cdc_json.reference_decoder import Meaning


class DebeziumJson(ChangeJson):
    """Changes as Debezium writes them: ``before`` and ``after``, and ``op`` (Flink's format ``debezium-json``)."""

    identifier = "debezium-json"
    dialect = DEBEZIUM
    metadata = DEBEZIUM.types

    schema_include: bool = option(
        "schema-include",
        "Read: whether messages hold their schema, beside the change in the member payload, as Kafka Connect writes "
        "them with value.converter.schemas.enable.",
        default=False,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Rules F-4 and CL-7."""
        yield from super().check(row, direction)
        if direction == "write" and self.schema_include is True:
            yield Problem(
                "debezium-json-schema",
                "the format 'debezium-json' writes no schema into its messages, but schema-include is true",
                "leave schema-include out where the table is written",
            )

    def meaning(self, row: t.Row, use: Use = ALONE) -> Meaning:
        """What is wanted of the messages."""
        return attrs.evolve(super().meaning(row, use), payload=self.schema_include)
