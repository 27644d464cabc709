"""The table of ``kdsl run --report``."""

from __future__ import annotations

from rich.console import Console

from kdsl.cli.report import report
from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics


def test_what_was_left_out_is_shown_by_reason_and_operator() -> None:
    source = SourceMetrics(
        "Orders",
        num_records_in=7,
        num_records_dropped={"parse-error": 2, "tombstone": 0},
        num_rule_violations={"a [b]": 3},
        current_offsets={("orders", 0): 5},
    )
    query = QueryMetrics("id", "run", "copy", 2, (source,), (SinkMetrics("Out", num_records_out=4),), {"dedupe": 1895})
    console = Console(width=200)
    with console.capture() as capture:
        console.print(report("copy", query))
    lines = [" ".join(line.replace("│", " ").split()) for line in capture.get().splitlines()]

    assert "numLateRecordsDropped (dedupe) 1,895 rows" in lines
    assert "Orders numRecordsIn 7 records" in lines
    assert "Orders numRecordsDropped (parse-error) 2 records" in lines
    assert "Orders numRuleViolations (a [b]) 3 rows" in lines
    assert "Out numRecordsOut 4 records" in lines
    assert not any("tombstone" in line or "currentOffsets" in line for line in lines)
