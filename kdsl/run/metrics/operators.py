"""What Spark's progress says of the stateful operators of a query: windows, joins of streams, deduplications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

LATE_ROWS = "numRowsDroppedByWatermark"
ROWS = "numRowsTotal"
MEMORY = "memoryUsedBytes"


def count_by_operator(document: Mapping[str, Any], number: str) -> dict[str, int]:
    """Return a number of each stateful operator of a batch, by its name.

    Operators of one kind have the same name in Spark; the second one of a query is called ``dedupe-2``.

    Args:
        document: Spark's progress report, as JSON. Operators that do not have the number are left out.
        number: Its name in Spark's report.
    """
    kinds: Counter[str] = Counter()
    counts = {}
    for operator in document.get("stateOperators") or ():
        kind = str(operator.get("operatorName") or "operator")
        kinds[kind] += 1
        if number in operator:
            counts[kind if kinds[kind] == 1 else f"{kind}-{kinds[kind]}"] = int(operator[number])
    return counts
