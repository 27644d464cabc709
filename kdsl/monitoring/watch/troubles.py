"""What somebody should look at: the alerts that metrics declare, applied to the history of a query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import attrs

from kdsl.durations import parse_duration
from kdsl.monitoring.alerts import WINDOW
from kdsl.monitoring.panels import list_metrics
from kdsl.monitoring.watch.endpoint import Key
from kdsl.monitoring.watch.history import History
from kdsl.run.metrics.model import Alert, Kind, Metric

_WINDOW = parse_duration(WINDOW).total_seconds()
_ONLY = re.compile(r'(\w+)=~"([^"]*)"')
_METRICS = list_metrics()


@attrs.frozen
class Trouble:
    """A value for which an alert is declared.

    Attributes:
        severity: ``critical``, ``warning``, or ``pending`` for one that has not lasted as long as the alert says.
        table: The table; empty for the query itself.
        metric: The metric.
        label: The value of its label; empty if it has none.
        text: What has happened, in the alert's words.
        since: Since when, in seconds since 1970; None for a counter.
    """

    severity: str
    table: str
    metric: str
    label: str
    text: str
    since: float | None


def find_troubles(history: History, values: Mapping[Key, float], now: float) -> Iterator[Trouble]:
    """Yield what is in trouble among the present values of a query."""
    for key, value in values.items():
        metric = _METRICS[key[1]]
        alert = metric.alert
        if alert is None or not _counts(alert, metric, key):
            continue
        since = None
        if metric.kind is Kind.COUNTER:
            value = history.increase(key, now - _WINDOW)
            if value <= alert.above:
                continue
        else:
            since = history.above(key, alert.above)
            if since is None:
                continue
        lasts = not alert.lasting or (
            since is not None and now - since >= parse_duration(alert.lasting).total_seconds()
        )
        labels = dict(zip(metric.labels, key[2], strict=True))
        text = _write_text(alert, value, labels)
        if not lasts:
            text += f" (an alert after {alert.lasting})"
        yield Trouble(alert.severity if lasts else "pending", key[0], key[1], "".join(key[2]), text, since)


def _counts(alert: Alert, metric: Metric, key: Key) -> bool:
    """Whether an alert is about a value, by its labels."""
    labels = dict(zip(metric.labels, key[2], strict=True))
    return all(re.fullmatch(pattern, labels[name]) for name, pattern in _ONLY.findall(alert.only))


def _write_text(alert: Alert, value: float, labels: Mapping[str, str]) -> str:
    """The summary of an alert with the value, as Prometheus would write it, and with labels that it does not name."""
    number = f"{value:,.0f}"
    text = alert.summary.replace("{{ $value | humanizeDuration }}", write_duration(value))
    text = text.replace("{{ $value }}", number)
    rest = [f"{name} {label}" for name, label in labels.items() if f"$labels.{name}" not in text]
    for name, label in labels.items():
        text = text.replace(f"{{{{ $labels.{name} }}}}", label)
    if "$value" not in alert.summary and "$labels" not in alert.summary and rest:
        rest.append(number)
    return f"{text} ({', '.join(rest)})" if rest else text


def write_duration(seconds: float) -> str:
    """A duration with its two largest units: ``2 h 5 min``."""
    rest, parts = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts[:2]) or "0 s"
