"""The alert rules for Prometheus: what somebody should look at, from the alerts that metrics declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from kdsl.monitoring.panels import list_metrics
from kdsl.run.metrics.model import Kind, Metric, QueryMetrics, metrics_of, prometheus_name

WINDOW = "10m"
"""How far back a counter is looked at."""
GONE = "KdslQueryGone"


def write_rules() -> str:
    """The rules as YAML, for ``rule_files`` of Prometheus."""
    return yaml.safe_dump(make_rules(), sort_keys=False, allow_unicode=True, width=120)


def make_rules() -> Mapping[str, Any]:
    """The rules as the document of such a file.

    Their form: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/
    """
    rules = [*(_make_rule(metric) for metric in list_metrics().values() if metric.alert), *_find_gone()]
    return {"groups": [{"name": "kdsl", "rules": rules}]}


def _make_rule(metric: Metric) -> Mapping[str, Any]:
    alert = metric.alert
    assert alert is not None
    name = prometheus_name(metric.name, metric.kind)
    selected = f"{name}{{{alert.only}}}" if alert.only else name
    subject = "{{ $labels.query }}" + ("" if metric in metrics_of(QueryMetrics) else ", {{ $labels.table }}")
    return {
        "alert": f"Kdsl{metric.name[0].upper()}{metric.name[1:]}",
        "expr": _find_gauge(selected, alert.above)
        if metric.kind is Kind.GAUGE
        else _find_increase(selected, alert.above),
        **({"for": alert.lasting} if alert.lasting else {}),
        "labels": {"severity": alert.severity},
        "annotations": {"summary": f"{subject}: {alert.summary}", "description": metric.doc},
    }


def _find_gauge(series: str, above: float) -> str:
    return f"{series} > {above:g}"


def _find_increase(series: str, above: float) -> str:
    """The expression for a counter that has grown; also for one that is above 0 when Prometheus sees it first."""
    return f"increase({series}[{WINDOW}]) > {above:g} or ({series} > {above:g} unless {series} offset {WINDOW})"


def _find_gone() -> Iterator[Mapping[str, Any]]:
    """The rule for a query that has ended, or whose process has: its metrics are not there any more."""
    series = "kdsl_num_records_in_total"
    yield {
        "alert": GONE,
        "expr": f"max by (query) ({series} offset 15m) unless max by (query) ({series})",
        "for": "5m",
        "labels": {"severity": "critical"},
        "annotations": {
            "summary": "{{ $labels.query }}: the query has ended, or its metrics are not served any more",
            "description": "Its metrics were there 15 minutes ago. The alert ends by itself after 15 minutes.",
        },
    }
