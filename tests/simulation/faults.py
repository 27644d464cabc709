"""The seeds that `tests.simulation.test_seeds` runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SEEDS: Mapping[str, int] = {
    "delta": 750,
    "documents": 150,
    "exactly_once": 300,
    "ingest": 200,
    "jdbc": 300,
    "leases": 250,
    "reading": 250,
    "staged": 250,
    "upsert-state": 250,
    "write_once": 250,
}
"""By scenario, how many seeds run with all tests."""

FOUND: Sequence[tuple[str, int]] = (
    ("delta", 8202),
    ("exactly_once", 6172),
    ("reading", 584),
    ("upsert-state", 1410),
)
"""Seeds that have found a fault, each with its scenario."""

FAULTS: Mapping[tuple[str, str], str] = {
    ("A1", "exactly_once"): "101-200",
    ("A1-planning", "reading"): "51-150",
    ("A2", "staged"): "151-250",
    ("A3", "exactly_once"): "1-100",
    ("A9", "write_once"): "1-50",
    ("A10", "reading"): "51-150",
    ("A11", "exactly_once"): "1-100",
    ("A11", "reading"): "1-100",
    ("E4", "ingest"): "1-50",
    ("E5", "ingest"): "1-50",
    ("E17", "documents"): "1-50",
    ("E17", "ingest"): "1-100",
    ("E17-name", "documents"): "401-500",
    ("I1", "reading"): "151-250",
    ("J1", "staged"): "1-100",
    ("J2", "delta"): "1-50",
    ("J3", "delta"): "3251-3300",
    ("J4", "jdbc"): "251-350",
    ("J9", "staged"): "1801-1850",
    ("incomplete-rows", "exactly_once"): "51-150",
    ("letters-doubled", "documents"): "1-50",
    ("letters-forgotten", "documents"): "1-100",
    ("letters-uncounted", "documents"): "101-150",
    ("look-before-joining", "leases"): "1-50",
    ("snapshot", "jdbc"): "4651-4700",
    ("skipped-uncounted", "reading"): "251-300",
    ("stale-manifest", "exactly_once"): "351-400",
    ("state-half-replaced", "upsert-state"): "1401-1420",
    ("state-start-removed", "upsert-state"): "1-50",
}
"""By a fault that kdsl had or could have, and a scenario, seeds that find it when it is brought back."""
