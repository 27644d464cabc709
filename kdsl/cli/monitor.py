"""``kdsl monitor``: a dashboard for Grafana and alert rules for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdsl.cli.console import write_document

app = typer.Typer(
    name="monitor",
    help="Write what Grafana and Prometheus need to watch the queries that serve_metrics shows.",
    no_args_is_help=True,
)
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; standard output without it.")]


@app.command()
def grafana(file: Out = None) -> None:
    """Write a dashboard as JSON: in Grafana choose Dashboards, New, Import."""
    from kdsl.monitoring.grafana import write_dashboard

    write_document(write_dashboard(), file)


@app.command()
def alerts(file: Out = None) -> None:
    """Write alert rules as YAML: name the file in rule_files of prometheus.yml."""
    from kdsl.monitoring.alerts import write_rules

    write_document(write_rules(), file)
