"""``kdsl monitor``: a dashboard for Grafana and alert rules for Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml

from kdsl.cli.console import err, out

app = typer.Typer(
    name="monitor",
    help="Write what Grafana and Prometheus need to watch the queries that serve_metrics shows.",
    no_args_is_help=True,
)
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; standard output without it.")]


@app.command()
def grafana(file: Out = None) -> None:
    """Write a dashboard as JSON: in Grafana choose Dashboards, New, Import."""
    from kdsl.monitoring.grafana import make_dashboard

    _write(json.dumps(make_dashboard(), indent=2, ensure_ascii=False) + "\n", file)


@app.command()
def alerts(file: Out = None) -> None:
    """Write alert rules as YAML: name the file in rule_files of prometheus.yml."""
    from kdsl.monitoring.alerts import make_rules

    _write(yaml.safe_dump(make_rules(), sort_keys=False, allow_unicode=True, width=120), file)


def _write(document: str, file: Path | None) -> None:
    if file is None:
        out.file.write(document)
    else:
        file.write_text(document, encoding="utf-8")
        err.print(f"wrote {file}")
