"""What the tests of `kdsl diff` and `kdsl apply` share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

import kdsl
from kdsl import Diff, Difference, Table


def table(topic: str | None, *columns: str, name: str = "Orders", **options: Any) -> Table:
    """A table in SQL; options are written with ``_`` for ``.`` and ``__`` for ``-``."""
    named = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    all_options = {"connector": "kafka", "topic": topic, "value.format": "json", **named}
    clause = ", ".join(f"'{key}' = '{value}'" for key, value in all_options.items() if value is not None)
    return kdsl.sql(f"CREATE TABLE {name} ({', '.join(columns or ('id BIGINT',))}) WITH ({clause})")


def list_values(diff: Diff | Iterable[Difference]) -> list[tuple[str, str, str | None, str | None]]:
    """Mark, name of what differs, live and declared value of each difference."""
    differences = diff.differences if isinstance(diff, Diff) else diff
    return [(d.mark, d.what or d.kind, d.live, d.declared) for d in differences]


def only(diff: Diff) -> Difference:
    """The one difference, which is printed as one line besides the heading and the summary."""
    (difference,) = diff.differences
    lines = str(diff).splitlines()
    assert sum(bool(re.match(r"\s*[+~!?] ", line)) for line in lines) == 1
    return difference


def snapshot(admin: AdminClient, topics: Iterable[str]) -> Mapping[str, object]:
    """The ids, partitions and configs of topics, to compare a cluster before and after."""
    names = sorted(topics)
    described = admin.describe_topics(TopicCollection(names))
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configs = {r.name: f.result() for r, f in admin.describe_configs(resources).items()}
    return {
        name: (
            str(described[name].result().topic_id),
            [(p.id, [r.id for r in p.replicas]) for p in described[name].result().partitions],
            {key: entry.value for key, entry in configs[name].items()},
        )
        for name in names
    }
