"""The options of the data source ``kdsl``, which carry a plan and a cluster to the executors as strings.

They hold the plan, the cluster without literal secrets, and the literals under a name that Spark redacts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from kdsl.client_settings.properties import Properties
from kdsl.cluster import Cluster, Registry
from kdsl.errors import fail_on
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.text import plan_text, read_plan_text, split_secrets, with_secrets
from kdsl.run.dead_letters.cluster import letter_cluster
from kdsl.run.records.registry import format_problems, registry_of

P = TypeVar("P", ReadPlan, WritePlan)

PLAN = "plan"
CLUSTER = "cluster"
LITERALS = "cluster.secret"  # Spark redacts the values of options whose names contain "secret"
LETTERS = "deadletters.cluster"
LETTERS_LITERALS = "deadletters.secret"
MATCH = "match"
"""How the columns of a write are matched: `BY_NAME`, or a `kdsl.run.dataframes.match_batches.BatchMatch`."""
BY_NAME = "by-name"
"""The writer gets the columns of a DataFrame, and matches them itself before the first row."""
REPORT = "report"
"""The option of a source with a function that is called for all decoded records (`kdsl.run.task_functions`)."""
PREPARE = "prepare"
"""The option of a sink with a function that makes the written rows of a task's batches."""


def write_options(plan: ReadPlan | WritePlan, cluster: Cluster) -> dict[str, str]:
    """Return the options of a read or write; literal secrets are only in those that Spark redacts.

    A read with dead letters also has the options of their cluster.
    """
    fail_on(format_problems(plan, registry_of(cluster, plan)), plan.table)
    without_literals, literals = cluster.split_literals()
    literals |= split_secrets(plan)[1]
    written = {PLAN: plan_text(plan), CLUSTER: json.dumps(_cluster_document(without_literals), separators=(",", ":"))}
    if isinstance(plan, ReadPlan) and (of_letters := letter_cluster(plan, cluster)) is not None:
        without_literals, secrets = of_letters.split_literals()
        written[LETTERS] = json.dumps(_cluster_document(without_literals), separators=(",", ":"))
        written |= {LETTERS_LITERALS: json.dumps(secrets)} if secrets else {}
    return {**written, LITERALS: json.dumps(literals)} if literals else written


def read_letter_cluster(options: Mapping[str, str]) -> Cluster | None:
    """Read the cluster of the dead letters back from the options of `write_options`; None if the plan has none."""
    if LETTERS not in options:
        return None
    return _read_cluster(json.loads(options[LETTERS]), json.loads(options.get(LETTERS_LITERALS, "{}")))


def read_options(options: Mapping[str, str], kind: type[P]) -> tuple[P, Cluster]:
    """Read the plan and the cluster, with their literal secrets, back from the options of `write_options`."""
    literals = json.loads(options.get(LITERALS, "{}"))
    plan = with_secrets(read_plan_text(options[PLAN], kind), literals)
    return plan, _read_cluster(json.loads(options[CLUSTER]), literals)


def _cluster_document(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster, whose secrets must be references, as a JSON document; that is not checked."""
    registry = cluster.registry
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "properties": dict(cluster.properties),
        "name": cluster.name,
        "registry": None if registry is None else {"url": registry.url, "properties": dict(registry.properties)},
    }


def _read_cluster(document: Mapping[str, Any], literals: Mapping[str, str]) -> Cluster:
    """Read a cluster from its document, and put the literal secrets back in."""
    registry = document["registry"]
    cluster = Cluster(
        document["bootstrap_servers"],
        properties=Properties(document["properties"]),
        name=document["name"],
        registry=None if registry is None else Registry(registry["url"], Properties(registry["properties"])),
    )
    return cluster.with_literals(literals)
