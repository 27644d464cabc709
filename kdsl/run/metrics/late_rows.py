"""The rows that stateful operators drop because they are behind the watermark, as Spark's progress reports them.

Spark drops them without a message: the query goes on, and its lag is 0.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

log = logging.getLogger("kdsl.queries")

FAR_AHEAD = timedelta(days=1)
"""How far a watermark may be ahead of the clock before that is logged."""


def log_late_rows(query: str, document: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Log a warning that names the operators that have dropped late rows in a batch; nothing if none has.

    Args:
        query: The query's name or id.
        document: Spark's progress report, as JSON.
        counts: The number of dropped rows by operator.
    """
    late = [f"{operator} {count:,}" for operator, count in counts.items() if count > 0]
    if not late:
        return
    total = sum(count for count in counts.values() if count > 0)
    mark = (document.get("eventTime") or {}).get("watermark") or "not reported"
    log.warning(
        "%s: of batch %s %s late %s dropped: %s; the watermark is %s; if such rows must count, declare a longer delay "
        "of the watermark",
        query, document["batchId"], f"{total:,}", "row was" if total == 1 else "rows were", ", ".join(late), mark,
    )  # fmt: skip


def describe_future_watermark(query: str, watermark: float, now: float) -> str | None:
    """Describe a watermark that is far ahead of the clock; None for another one.

    Args:
        query: The query's name or id.
        watermark: The watermark, in seconds since 1970.
        now: The time, in seconds since 1970.
    """
    ahead = watermark - now
    if ahead < FAR_AHEAD.total_seconds():
        return None
    return (
        f"{query}: the watermark is {ahead / 86_400:,.0f} days ahead of the clock, because a row had such a time: all "
        "rows up to it are late from now on, also after a restart. Start with a new checkpoint after that row; the "
        "option watermark_max_ahead ('scan.watermark.max-ahead') keeps times that are too far ahead from advancing the "
        "watermark"
    )
