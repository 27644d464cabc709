"""The dashboard and the alert rules: every metric is there, Prometheus reads every expression, and each alert fires."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.monitoring.alerts import GONE, make_rules
from kdsl.monitoring.grafana import make_dashboard
from kdsl.monitoring.panels import ROWS, list_metrics, list_panels
from kdsl.run.metrics.model import Kind, Metric, QueryMetrics, metrics_of, prometheus_name

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
RULES: list[Mapping[str, Any]] = list(make_rules()["groups"][0]["rules"])


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run([str(PROMTOOL), *map(str, arguments)], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def write(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def test_every_metric_has_one_panel() -> None:
    placed = [name for names in ROWS.values() for name in names]

    assert sorted(placed) == sorted(list_metrics())


def test_panels_do_not_overlap() -> None:
    panels = list(make_dashboard()["panels"])
    panels += [inner for panel in panels for inner in panel.get("panels", ())]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_expression_selects_by_the_variables() -> None:
    names = {variable["name"] for variable in make_dashboard()["templating"]["list"]}

    assert names == {"datasource", "query", "table"}
    for panel in list_panels():
        assert set(re.findall(r"\$(\w+)", panel.expression)) <= names | {"__range", "__rate_interval"}
        assert 'query=~"$query"' in panel.expression


@needs_promtool
def test_prometheus_reads_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    expressions = [re.sub(r"\$__(?:range|rate_interval)", "5m", panel.expression) for panel in list_panels()]
    rules = [{"record": f"panel:{i}", "expr": expression} for i, expression in enumerate(expressions)]

    promtool("check", "rules", write(tmp_path / "panels.yaml", {"groups": [{"name": "panels", "rules": rules}]}))


@needs_promtool
def test_prometheus_reads_the_rules_as_the_command_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yaml"

    assert CliRunner().invoke(app, ["monitor", "alerts", "--out", str(file)]).exit_code == 0
    promtool("check", "rules", file)


def series_of(metric: Metric) -> str:
    """A series as `kdsl.serve_metrics` shows it."""
    alert = metric.alert
    assert alert is not None
    labels = {"query": "q", "table": "t", **dict.fromkeys(metric.labels, "x")}
    if metric in metrics_of(QueryMetrics):
        del labels["table"]
    labels |= dict(re.findall(r'(\w+)=~"([^"|]*)', alert.only))
    inside = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{prometheus_name(metric.name, metric.kind)}{{{inside}}}"


ALERTS = [metric for metric in list_metrics().values() if metric.alert is not None]


@needs_promtool
@pytest.mark.parametrize("metric", ALERTS, ids=lambda metric: metric.name)
def test_an_alert_fires_when_the_value_is_too_large_and_not_before(metric: Metric, tmp_path: Path) -> None:
    """A counter grows at minute 60 and is constant afterwards; a gauge goes above its limit then, and stays."""
    assert metric.alert is not None
    too_much = metric.alert.above + 1
    later = f"{too_much:g}x60"
    rule = next(rule for rule in RULES if prometheus_name(metric.name, metric.kind) in rule["expr"])
    rules = write(tmp_path / "alerts.yaml", {"groups": [{"name": "kdsl", "rules": [rule]}]})
    expression = f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}})'
    fires = [{"labels": "{}", "value": 1}]
    moments = [("59m", []), ("90m" if metric.kind is Kind.GAUGE else "65m", fires)]
    if metric.kind is Kind.COUNTER:
        moments.append(("100m", []))
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series_of(metric), "values": f"0x59 {later}"}],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": moment, "exp_samples": samples} for moment, samples in moments
                ],
            }
        ],
    }

    promtool("test", "rules", write(tmp_path / "test.yaml", test))


@needs_promtool
def test_records_that_were_lost_before_prometheus_saw_the_query_count(tmp_path: Path) -> None:
    rules = write(tmp_path / "alerts.yaml", dict(make_rules()))
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": 'kdsl_records_lost_total{query="q", table="t"}', "values": "_x10 7x60"}],
                "promql_expr_test": [
                    {
                        "expr": 'count(ALERTS{alertname="KdslRecordsLost", alertstate="firing"})',
                        "eval_time": moment,
                        "exp_samples": samples,
                    }
                    for moment, samples in (("9m", []), ("13m", [{"labels": "{}", "value": 1}]), ("30m", []))
                ],
            }
        ],
    }

    promtool("test", "rules", write(tmp_path / "test.yaml", test))


@needs_promtool
def test_a_query_that_has_ended_is_noticed(tmp_path: Path) -> None:
    rules = write(tmp_path / "alerts.yaml", dict(make_rules()))
    series = 'kdsl_num_records_in_total{query="q", table="t"}'
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": "1+1x30 stale"}],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{GONE}", alertstate="firing"}})',
                        "eval_time": moment,
                        "exp_samples": samples,
                    }
                    for moment, samples in (("30m", []), ("40m", [{"labels": "{}", "value": 1}]), ("60m", []))
                ],
            }
        ],
    }

    promtool("test", "rules", write(tmp_path / "test.yaml", test))


def test_the_command_writes_the_dashboard(tmp_path: Path) -> None:
    file = tmp_path / "kdsl.json"

    assert CliRunner().invoke(app, ["monitor", "grafana", "--out", str(file)]).exit_code == 0
    assert json.loads(file.read_text()) == json.loads(json.dumps(make_dashboard()))
    assert json.loads(CliRunner().invoke(app, ["monitor", "grafana"]).stdout)["uid"] == "kdsl-queries"
