"""Client properties, commits of offsets, and options that packages add (RULES PR-1, PR-7, ST-8)."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.client_settings.to_java import java_settings
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve.rule import problem
from kdsl.resolve.startup import commits_offsets
from kdsl.resolve.transport import transport_of

_COMMIT_SWITCHES = ("enable.auto.commit", "commit.offsets.on.checkpoint")


def check_client_properties(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report the client properties that the client of this direction does not accept, by name or by value.

    Warn of those without effect. References to secrets are not resolved, and no file is read.
    """
    properties = table.properties.reveal()
    translate = java_settings if transport_of(table) == "jvm" else librdkafka_settings
    for wrong in translate(properties, "consumer" if direction == "read" else "producer").problems:
        option = f"properties.{wrong.property or ''}"
        yield problem(table, wrong.code, wrong.message, wrong.fix, option=option, severity=wrong.severity)


def check_offset_commits(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a read, a property that turns offset commits on in a table without a consumer group to commit to."""
    properties = table.properties.reveal()
    if direction != "read" or properties.get("group.id", "").strip() or commits_offsets(table):
        return
    for switch in _COMMIT_SWITCHES:
        if properties.get(switch, "").strip().lower() == "true":
            message = f"{switch!r} is true, but the table declares no consumer group to commit offsets to"
            fix = f"add 'properties.group.id' (group_id= in Python), or remove {switch!r}"
            yield problem(table, "commit-without-group", message, fix, option=f"properties.{switch}")


def check_added_options(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report what is wrong with options that packages add, for a read and for a write."""
    del direction
    for wrong in table.options.check_table(table):  # pyright: ignore[reportArgumentType]  # it takes a converter for the type
        yield problem(table, wrong.code, wrong.message, wrong.fix, option=wrong.option, severity=wrong.severity)
