"""Client settings as options of Spark's Kafka connector: ``kafka.*``, with secrets that Spark does not show.

The connector's clients run in the driver and in executors, and take their settings from the options. Therefore the
options contain secrets, which the driver resolves. Spark shows options in plans, in its UI and in event logs, and hides
those whose names or values match a regular expression; `hide_secrets` adds Kafka's names to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kdsl.client_settings.machine import Machine
from kdsl.client_settings.model import Client
from kdsl.client_settings.to_java import java_settings
from kdsl.cluster import Cluster
from kdsl.errors import fail_on
from kdsl.run.session import require_setting, try_setting
from kdsl.secrets import resolve
from kdsl.secrets.hiding import SECRET_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REDACTED = "spark.sql.redaction.options.regex"
_EVERYTHING = ".*"


def _disguise(name: str) -> str:
    """Return a regular expression that matches a name and does not contain the name itself: ``[p]assword``.

    Spark Connect returns no setting whose value contains ``password``, ``secret`` or ``token`` (since Spark 4.3), and
    `hide_secrets` must be able to read what it has set.
    """
    return re.sub("[a-z]+", lambda word: f"[{word[0][0]}]{word[0][1:]}", re.escape(name))


HIDDEN_NAMES = r"(?i:kafka\.(?:" + "|".join(map(_disguise, sorted(SECRET_SETTINGS))) + "))"
"""A regular expression for the options whose values must not be shown."""


def kafka_options(cluster: Cluster, client: Client, table: str) -> dict[str, str]:
    """Build the options ``kafka.*`` for a kind of client, with resolved secrets: never print or store them.

    Key files at an address are fetched to this machine, and stay until the process ends.
    """
    java = java_settings(cluster.settings(), client, resolve, Machine())
    fail_on(java.problems, f"{table}: the cluster {cluster.label!r}")
    return {f"kafka.{name}": text for name, text in java.settings.items()}


def anchor_pattern(pattern: str) -> str:
    """Anchor a pattern of topics to whole names: Java's searches also match parts."""
    return f"^(?:{pattern})$"


def hide_secrets(spark: SparkSession, options: Iterable[str]) -> None:
    """Extend a session's setting of what Spark hides, so that Kafka's secrets are hidden wherever it shows options.

    The setting is ``spark.sql.redaction.options.regex``. If the session has its own regular expression but does not
    return it, nothing can be added to it, and the session hides the values of all options.

    Args:
        spark: The session.
        options: The names of the connector's options.
    """
    from pyspark.errors import PySparkException

    try:
        current = spark.conf.get(_REDACTED) or ""
    except PySparkException:  # every Spark has a default: this one is set, and Spark Connect redacts it
        current = _EVERYTHING
    if HIDDEN_NAMES not in current:
        hidden = "|".join(part for part in (current, HIDDEN_NAMES) if part)
        if any(re.fullmatch(HIDDEN_NAMES, name) for name in options):
            require_setting(spark, _REDACTED, hidden, "hiding the secrets of the transport jvm")
        else:
            try_setting(spark, _REDACTED, hidden)
