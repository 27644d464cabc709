"""Tables of changes: lines that a type checker refuses."""

from __future__ import annotations

from kdsl import CanalJson, DebeziumJson, MaxwellJson, OggJson, row_kind, with_row_kind
from tests.typing.cases.changes_right import product

DebeziumJson(schema_included=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
CanalJson(database_include=["a"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
MaxwellJson(schema_include=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
OggJson(timestamp_format="sql")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
with_row_kind(product, "D")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
message: int = row_kind(product)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
