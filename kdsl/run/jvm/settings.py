"""Client settings as options of Spark's Kafka connector: ``kafka.*``, with secrets that Spark does not show.

The connector's clients run in the driver and in executors, and take their settings from the options, so that secrets
travel in them, resolved on the driver. Spark shows options in plans, in its UI and in event logs, and hides those whose
names or values match a regular expression; `hide_secrets` adds Kafka's names to it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdsl.client.java import java_settings
from kdsl.client.machine import ThisMachine
from kdsl.client.model import SECRET, Client
from kdsl.cluster import Cluster
from kdsl.errors import fail_on
from kdsl.secrets import resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REDACTED = "spark.sql.redaction.options.regex"
_DEFAULT = "(?i)url"
HIDDEN_NAMES = r"(?i:kafka\.(?:" + "|".join(re.escape(name) for name in sorted(SECRET)) + "))"
"""A regular expression for the options whose values nobody may see."""


def kafka_options(cluster: Cluster, client: Client, table: str) -> dict[str, str]:
    """The options ``kafka.*`` for a kind of client, with secrets in the open: never print or keep them.

    Args:
        cluster: Whose settings.
        client: The kind of client.
        table: The table's name, for messages.

    Raises:
        ResolveError: The settings have errors, or a reference cannot be resolved here.
    """
    java = java_settings(cluster.settings(), client, resolve, ThisMachine())
    fail_on(java.problems, f"{table}: the cluster {cluster.name or cluster.bootstrap_servers!r}")
    return {f"kafka.{name}": text for name, text in java.settings.items()}


def java_pattern(pattern: str) -> str:
    """A pattern that the whole name of a topic must match, for Java's searches, which are content with a part of it."""
    named = re.sub(r"\(\?P=(\w+)\)", r"\\k<\1>", pattern.replace("(?P<", "(?<"))
    return f"^(?:{named})$"


def hide_secrets(spark: SparkSession) -> None:
    """Let a session hide Kafka's secrets wherever it shows options; what it hides already stays hidden."""
    held = spark.conf.get(_REDACTED, _DEFAULT) or _DEFAULT
    if HIDDEN_NAMES not in held:
        spark.conf.set(_REDACTED, f"{held}|{HIDDEN_NAMES}")
