"""Topics: a list or a pattern, legal names, and where a sink with several topics writes (RULES TOP-1 to TOP-5)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kdsl.client_settings.properties import Properties
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, listing
from kdsl.formats import Direction
from kdsl.name_patterns import PatternError, compile_pattern
from kdsl.resolve.model import Topics
from kdsl.resolve.rule import problem
from kdsl.secrets import Secret

LONGEST_NAME = 249
POLICY = "cleanup.policy"
COMPACT = "compact"
LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")


def topics_of(table: TableDef) -> Topics:
    """The topics of a valid table, each once, or its pattern."""
    pattern = table.options.topic_pattern
    if pattern is not None:
        compile_pattern(pattern)
    return Topics(tuple(dict.fromkeys(table.options.topic)), pattern)


def check_topic_or_pattern(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report a table that names neither topics nor a pattern, or both."""
    names, pattern = table.options.topic, table.options.topic_pattern
    topic, topic_pattern = table.option_name("topic"), table.option_name("topic_pattern")
    if names and pattern is not None:
        both = f"{table.setting('topic', ';'.join(names))} and {table.setting('topic_pattern', pattern)}"
        message = f"{both} are both set, but only one can name the topics"
        yield problem(table, "topic-and-pattern", message, f"remove {topic} or {topic_pattern}", option="topic_pattern")
    if not names and pattern is None:
        message = f"neither {topic} nor {topic_pattern} is set"
        yield problem(table, "topic-missing", message, f"add {topic} with the name of the topic", option="topic")


def check_topic_names(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report topic names that Kafka does not allow, and an empty or unusable pattern; warn of repeated names."""
    option = table.option_name("topic")
    for name in table.options.topic:
        if not LEGAL_NAME.fullmatch(name) or len(name) > LONGEST_NAME or name in (".", ".."):
            message = f"{option} names the topic {name!r}, which Kafka does not allow"
            fix = f"use 1 to {LONGEST_NAME} of the characters a-z A-Z 0-9 . _ -; a regular expression goes to "
            yield problem(table, "topic-name", message, fix + table.option_name("topic_pattern"), option="topic")
    repeated = sorted({name for name in table.options.topic if table.options.topic.count(name) > 1})
    if repeated:
        message = f"{option} names {listing(repeated)} more than once"
        yield problem(table, "topic-repeated", message, "name each topic once", option="topic", severity="warning")
    pattern = table.options.topic_pattern
    if pattern == "":
        message = f"{table.setting('topic_pattern', pattern)} matches no topic"
        yield problem(table, "topic-pattern", message, "write a pattern such as 'orders-.*'", option="topic_pattern")
    elif pattern is not None:
        try:
            compile_pattern(pattern)
        except PatternError as e:
            message = f"{table.setting('topic_pattern', pattern)} {e}"
            yield problem(table, "topic-pattern", message, e.fix, option="topic_pattern")


def check_topic_settings(table: TableDef, _: Direction) -> Iterator[Problem]:
    """Report settings of brokers among the configs, and configs without a value; names are not checked.

    Warn of a cleanup policy without compaction in an upsert table.
    """
    option = table.option_name("topic_configs", "topic.config.*")
    configs = Properties(table.options.topic_configs)
    instead = {"num.partitions": "topic_partitions", "default.replication.factor": "topic_replication_factor"}
    for name, other in instead.items():
        if name in configs:
            message = f"{option} has {name!r}, which is a setting of brokers and not of topics"
            yield problem(table, "topic-config", message, f"set {table.option_name(other)}", option=_config(name))
    for name in (name for name, value in configs.items() if isinstance(value, Secret) or not str(value)):
        message = f"{option} has no value for {name!r} that a topic can have"
        yield problem(table, "topic-config", message, "write the value, or remove it", option=_config(name))
    policy = str(configs.get(POLICY, COMPACT))
    if table.upserts is not None and COMPACT not in policy:
        message = f"{option} sets {POLICY!r} to {policy!r}, with which rows of an upsert table that are not updated "
        message += "leave the topic"
        fix = f"write {COMPACT!r}, or remove it"
        yield problem(table, "topic-config", message, fix, option=_config(POLICY), severity="warning")


def _config(name: str) -> str:
    """The Flink key of a config."""
    return f"topic.config.{name}"


def check_sink_topic(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report a sink with several topics or a pattern, but no writable metadata column with the topic of each row."""
    names, pattern = table.options.topic, table.options.topic_pattern
    if names and pattern is not None:
        return
    several = len(set(names)) > 1 or pattern is not None
    column = next((c for c in table.columns if c.shows == "topic"), None)
    if direction == "write" and several and (column is None or column.virtual):
        option, value = ("topic", ";".join(names)) if names else ("topic_pattern", pattern)
        message = f"{table.setting(option, value)} does not name a single topic, so each row must name its topic"
        fix = "add a writable column of the metadata 'topic', or name one topic"
        if column is not None:
            fix = f"make {column.name!r} writable (metadata instead of virtual), or name one topic"
        yield problem(table, "sink-topic", message, fix, column=column, option=option)
