"""Client properties: their names and values, commits of offsets, and secrets of a service (RULES PR-1, PR-7, ST-8)."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.client_settings.to_java import java_settings
from kdsl.client_settings.to_librdkafka import consumer_settings, producer_settings
from kdsl.declare.decrypted import PREFIX, PROVIDER, secret_property_names
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, nearest
from kdsl.formats import Direction
from kdsl.resolve.rule import problem
from kdsl.resolve.startup import commits_offsets
from kdsl.resolve.transport import transport_of
from kdsl.secrets import PROVIDERS

_COMMIT_SWITCHES = ("enable.auto.commit", "commit.offsets.on.checkpoint")


def check_client_properties(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report the client properties that the client of this direction does not accept, by name or by value.

    Warn of those without effect. References to secrets are not resolved, and no file is read.
    """
    properties = table.properties.reveal()
    if transport_of(table) == "jvm":
        problems = java_settings(properties, "consumer" if direction == "read" else "producer").problems
    else:
        problems = (consumer_settings if direction == "read" else producer_settings)(properties).problems
    for wrong in problems:
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


def check_decrypt_fields(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report decryption options that have no effect, name missing client properties, or lack a provider or a service.

    They are reported for a read and for a write.
    """
    del direction
    options, named = table.options, secret_property_names(table.options)
    service_options = [a for a in ("dew_endpoint", "dew_secret", "dew_version") if getattr(options, a)]
    if not named:
        if service_options:
            yield problem(
                table,
                "decrypt-fields",
                f"{table.option_name(service_options[0])} has no effect, because no client property is named whose "
                "value is a key of that service",
                f"write {table.setting('dew_fields', 'properties.sasl.jaas.config')}, or remove it",
                option=service_options[0],
            )
        return
    known = [f"{PREFIX}{name}" for name in table.properties]
    for name in named:
        if name not in known:
            yield problem(
                table,
                "decrypt-fields",
                f"{table.option_name('dew_fields')} names {name!r}, which is not a client property of the table"
                f"{nearest(name, known)}",
                "name client properties, such as properties.sasl.jaas.config; elsewhere write ${secret_values.KEY}",
                option="dew_fields",
            )
    if PROVIDER not in PROVIDERS.find_all():
        yield problem(
            table,
            "decrypt-fields",
            f"{table.option_name('dew_fields')} needs the secrets provider {PROVIDER!r}, which is not installed",
            f"install a package that registers {PROVIDER!r} in the entry-point group {PROVIDERS.name!r}, a function "
            "(key, endpoint, secret_name, version) -> secret; or write the secret as ${env:NAME} or ${file:PATH}",
            option="dew_fields",
        )
        return
    for attribute in ("dew_endpoint", "dew_secret"):
        if not getattr(options, attribute):
            yield problem(
                table,
                "decrypt-fields",
                f"{table.option_name('dew_fields')} is set without {table.option_name(attribute)}",
                f"set {table.option_name(attribute)}",
                option="dew_fields",
            )
