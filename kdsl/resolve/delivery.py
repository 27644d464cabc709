"""The delivery guarantee of a sink, and how it chooses partitions (RULES DG, TN, SP, PAR)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kdsl.callbacks import PARTITIONERS
from kdsl.declare.connector import Delivery
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, nearest
from kdsl.formats import Direction
from kdsl.resolve.model import Transactions
from kdsl.resolve.rule import problem

LONGEST_PREFIX = 64_000
SHORTEST_TIMEOUT_MS = 1_000
"""The shortest ``transaction.timeout.ms`` that librdkafka accepts."""
TIMEOUT = "transaction.timeout.ms"
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def delivery_of(table: TableDef) -> Delivery:
    """The delivery guarantee of a valid table: ``sink.semantic`` if it is set, otherwise the newer option."""
    options = table.options
    return options.semantic or options.delivery


def transactions_of(table: TableDef) -> Transactions | None:
    """How an exactly-once sink writes: its prefix, and whether batches are staged; None for the other guarantees."""
    if delivery_of(table) != "exactly-once":
        return None
    options = table.options
    return Transactions(options.transactional_id_prefix or "", staged=options.exactly_once == "staged")


def check_semantic(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a write, ``sink.semantic`` if it contradicts the newer option; otherwise warn that it is old.

    The newer option contradicts only if it does not have its default.
    """
    options = table.options
    if direction != "write" or options.semantic is None:
        return
    old, new = table.option_name("semantic"), table.option_name("delivery")
    default = type(options)().delivery
    if options.delivery != default and options.delivery != options.semantic:
        both = f"{table.setting('semantic', options.semantic)} and {table.setting('delivery', options.delivery)}"
        message = f"{both} contradict each other"
        yield problem(table, "semantic", message, f"remove {old}, the old name", option="semantic")
    else:
        message = f"{old} is the old name of {new}"
        fix = f"write {table.setting('delivery', options.semantic)}"
        yield problem(table, "semantic", message, fix, option="semantic", severity="warning")


def check_exactly_once(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a write, a missing or unusable prefix of an exactly-once sink, and contradicting client properties.

    Without exactly-once, warn of its options, which then have no effect.
    """
    options = table.options
    if direction != "write":
        return
    guarantee = table.setting("delivery", "exactly-once")
    prefix, named = options.transactional_id_prefix, table.option_name("transactional_id_prefix")
    if delivery_of(table) != "exactly-once":
        settings_without_effect = {"transactional_id_prefix": prefix, "exactly_once": options.exactly_once == "staged"}
        for attribute in (name for name, value in settings_without_effect.items() if value):
            message = f"{table.option_name(attribute)} has no effect without {guarantee}"
            fix = f"add {guarantee}, or remove it"
            yield problem(table, "exactly-once-unused", message, fix, option=attribute, severity="warning")
        return

    def write_prefix(better: str) -> str:
        return table.setting("transactional_id_prefix", better or f"{table.name}-1")

    if prefix is None:
        message = f"{guarantee} needs {named}: it is the prefix of the transactional ids"
        fix = f"add {write_prefix('')}, which no other job may use"
        yield problem(table, "transactional-id-prefix", message, fix, option="delivery")
    elif (wrong := wrong_prefix(prefix, named, write_prefix)) is not None:
        yield problem(table, "transactional-id-prefix", *wrong, option="transactional_id_prefix")
    settings = table.kdsl_settings
    if settings.idempotence is False:
        message = f"{guarantee} and 'enable.idempotence' = 'false' contradict each other: transactions need idempotence"
        fix = "remove 'enable.idempotence', or choose at-least-once"
        yield problem(table, "exactly-once-idempotence", message, fix, option="properties.enable.idempotence")
    if str(table.properties.reveal().get("retries")) == "0":
        message = f"{guarantee} and 'retries' = '0' contradict each other: a transaction must be able to retry"
        yield problem(table, "exactly-once-retries", message, "remove 'retries'", option="properties.retries")
    if settings.acks != "all":
        message = f"{guarantee} and 'acks' = {settings.acks!r} contradict each other: a transaction needs 'all'"
        yield problem(table, "exactly-once-acks", message, "remove 'acks'", option="properties.acks")
    timeout = settings.transaction_timeout_ms
    if timeout is not None and timeout < SHORTEST_TIMEOUT_MS:
        message = (
            f"{guarantee} and {TIMEOUT!r} = '{timeout}' contradict each other: the client accepts "
            f"{SHORTEST_TIMEOUT_MS} ms"
        )
        fix = "set a time longer than a batch takes, or remove it"
        yield problem(table, "transaction-timeout", f"{message} at least", fix, option=f"properties.{TIMEOUT}")


def wrong_prefix(prefix: str, named: str, write: Callable[[str], str]) -> tuple[str, str] | None:
    """Return why a string cannot be the prefix of transactional ids, and what to do; None if it can, or is empty.

    Args:
        prefix: The string.
        named: The option that it is the value of.
        write: Writes the option with what can be kept of the string, which may be empty.
    """
    if len(prefix) > LONGEST_PREFIX:
        message = f"{named} has {len(prefix):,} characters; with the suffix that kdsl adds, Kafka would reject it"
        return message, f"use at most {LONGEST_PREFIX:,} characters"
    if not prefix.isprintable() or prefix != prefix.strip():
        message = f"{named} is {prefix!r}, with surrounding blanks or invisible characters that no tool can type"
        return message, f"write {write(''.join(filter(str.isprintable, prefix)).strip())}"
    return None


def check_acknowledgements(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Warn of a sink with at-least-once delivery whose producer does not wait for all replicas."""
    acks = table.kdsl_settings.acks
    if direction != "write" or delivery_of(table) != "at-least-once" or acks == "all":
        return
    counts = "as soon as it is sent" if acks == "0" else "before its replicas have it"
    message = (
        f"{table.setting('delivery', 'at-least-once')} and 'acks' = {acks!r} contradict each other: a record counts as "
        f"written {counts}, and is lost if the broker fails"
    )
    fix = f"remove 'acks' (all is the default), or write {table.setting('delivery', 'none')} if loss is acceptable"
    yield problem(table, "at-least-once-acks", message, fix, option="properties.acks", severity="warning")


def check_partitioner(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report, for a write, an unknown partitioner, and round-robin in a table with key columns (RULES SP-1 to SP-6).

    Of a function only the form of its name is checked.
    """
    if direction != "write":
        return
    chosen, shown = table.options.partitioner, table.setting("partitioner", table.options.partitioner)
    if chosen not in PARTITIONERS and not _FUNCTION.fullmatch(chosen):
        message = f"{shown} is not a partitioner{nearest(chosen, PARTITIONERS)}"
        fix = "write 'default', 'fixed', 'round-robin', or a function as 'package.module:function'"
        yield problem(table, "partitioner", message, fix, option="partitioner")
    if chosen == "round-robin" and table.message_key:
        message = f"{shown} sends records of one key to several partitions, but the table has key columns"
        fix = f"remove {table.option_name('partitioner')}: by default records of one key go to one partition"
        yield problem(table, "partitioner-keys", message, fix, option="partitioner")
