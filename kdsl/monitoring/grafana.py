"""The dashboard for Grafana: one row for each group of metrics, with the queries and tables as variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from kdsl.monitoring.panels import CLIENTS, Panel, list_panels

_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def write_dashboard() -> str:
    """The dashboard as JSON, for Grafana's import."""
    return json.dumps(make_dashboard(), indent=2, ensure_ascii=False) + "\n"


def make_dashboard() -> Mapping[str, Any]:
    """The dashboard as Grafana (10 or newer) imports it.

    Its model: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
    """
    return {
        "title": "kdsl: Kafka tables on Spark",
        "uid": "kdsl-queries",
        "tags": ["kafka", "spark", "kdsl"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_choose_source(), _choose("query", "kdsl_num_records_in_total"), _choose_table()]},
        "panels": list(_place_panels()),
    }


def _choose_source() -> Mapping[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _choose_table() -> Mapping[str, Any]:
    """The tables of the chosen queries, read or written."""
    return _choose("table", '{__name__=~"kdsl_num_records_(in|out)_total", query=~"$query"}')


def _choose(label: str, series: str) -> Mapping[str, Any]:
    """A variable with the values of a label; at first all are chosen."""
    query = f"label_values({series}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _place_panels() -> Iterator[Mapping[str, Any]]:
    """The rows with their panels, three beside each other; the row of the clients is closed at first."""
    top, number = 0, 0
    for row, panels in groupby(list_panels(), key=lambda panel: panel.row):
        number += 1
        head = {"id": number, "type": "row", "title": row, "collapsed": row == CLIENTS}
        head["gridPos"] = {"h": 1, "w": 24, "x": 0, "y": top}
        top += 1
        placed = []
        for i, panel in enumerate(panels):
            number += 1
            across, down = i % _COLUMNS, i // _COLUMNS
            place = {"h": _HEIGHT, "w": _WIDTH, "x": across * _WIDTH, "y": top + down * _HEIGHT}
            placed.append({"id": number, "gridPos": place, **_plot(panel)})
        top += -(-len(placed) // _COLUMNS) * _HEIGHT
        if row == CLIENTS:
            yield {**head, "panels": placed}
        else:
            yield {**head, "panels": []}
            yield from placed


def _plot(panel: Panel) -> Mapping[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": "A", "datasource": _SOURCE, "expr": panel.expression, "legendFormat": panel.legend},
        ],
    }
