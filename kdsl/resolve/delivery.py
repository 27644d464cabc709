"""What a sink promises, and how it spreads its records (RULES DG, TN, SP, PAR)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kdsl.client.connector import connector_settings
from kdsl.declare.connector import Delivery
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, nearest
from kdsl.formats import Direction
from kdsl.partitioner import PARTITIONERS
from kdsl.resolve.keys import key_columns
from kdsl.resolve.model import Transactions
from kdsl.resolve.rule import problem

LONGEST_PREFIX = 64_000
LEAST_TIMEOUT_MS = 1_000
"""librdkafka takes no shorter ``transaction.timeout.ms``."""
TIMEOUT = "transaction.timeout.ms"
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def delivery_of(table: TableDef) -> Delivery:
    """The promise of a table that holds, whichever of the two options says it."""
    options = table.options
    return options.semantic or options.delivery


def transactions_of(table: TableDef) -> Transactions | None:
    """How an exactly-once sink that holds writes; None for the other promises."""
    if delivery_of(table) != "exactly-once":
        return None
    options = table.options
    return Transactions(options.transactional_id_prefix or "", staged=options.exactly_once == "staged")


def semantic(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """``sink.semantic`` still works, and does not contradict its new name (seed 001)."""
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


def exactly_once(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """An exactly-once sink has a prefix, an idempotent producer and a transport that can."""
    options = table.options
    if direction != "write":
        return
    promise = table.setting("delivery", "exactly-once")
    prefix, named = options.transactional_id_prefix, table.option_name("transactional_id_prefix")
    if delivery_of(table) != "exactly-once":
        given = {"transactional_id_prefix": prefix, "exactly_once": options.exactly_once == "staged"}
        for attribute in (name for name, value in given.items() if value):
            message = f"{table.option_name(attribute)} has no effect without {promise}"
            fix = f"add {promise}, or remove it"
            yield problem(table, "exactly-once-unused", message, fix, option=attribute, severity="warning")
        return
    if prefix is None:
        message = f"{promise} needs {named}: the names of its transactions on the cluster begin with it"
        fix = f"add {table.setting('transactional_id_prefix', f'{table.name}-1')}, which no other job may use"
        yield problem(table, "transactional-id-prefix", message, fix, option="delivery")
    elif len(prefix) > LONGEST_PREFIX:
        message = f"{named} has {len(prefix):,} characters; with what kdsl adds, Kafka would not take it"
        fix = f"give at most {LONGEST_PREFIX:,} characters"
        yield problem(table, "transactional-id-prefix", message, fix, option="transactional_id_prefix")
    elif not prefix.isprintable() or prefix != prefix.strip():
        message = f"{named} is {prefix!r}: with blanks around it, or characters that are not shown, no tool can name it"
        fix = f"write {table.setting('transactional_id_prefix', _printable(prefix) or f'{table.name}-1')}"
        yield problem(table, "transactional-id-prefix", message, fix, option="transactional_id_prefix")
    settings = connector_settings(table.properties.revealed())
    if settings.idempotence is False:
        message = f"{promise} and 'enable.idempotence' = 'false' contradict each other: transactions are idempotent"
        fix = "remove 'enable.idempotence', or choose at-least-once"
        yield problem(table, "exactly-once-idempotence", message, fix, option="properties.enable.idempotence")
    if str(table.properties.revealed().get("retries")) == "0":
        message = f"{promise} and 'retries' = '0' contradict each other: a transaction sends again what is not answered"
        yield problem(table, "exactly-once-retries", message, "remove 'retries'", option="properties.retries")
    if settings.acks != "all":
        message = f"{promise} and 'acks' = {settings.acks!r} contradict each other: a transaction needs 'all'"
        yield problem(table, "exactly-once-acks", message, "remove 'acks'", option="properties.acks")
    timeout = settings.transaction_timeout_ms
    if timeout is not None and timeout < LEAST_TIMEOUT_MS:
        message = (
            f"{promise} and {TIMEOUT!r} = '{timeout}' contradict each other: the client takes {LEAST_TIMEOUT_MS} ms"
        )
        fix = "give more than a batch takes, or remove it"
        yield problem(table, "transaction-timeout", f"{message} at least", fix, option=f"properties.{TIMEOUT}")


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).strip()


def partitioner(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """The partitioner is one that there is, and round-robin does not tear keys apart (RULES SP-1 to SP-6)."""
    if direction != "write":
        return
    chosen, shown = table.options.partitioner, table.setting("partitioner", table.options.partitioner)
    if chosen not in PARTITIONERS and not _FUNCTION.fullmatch(chosen):
        message = f"{shown} names no partitioner{nearest(chosen, PARTITIONERS)}"
        fix = "write 'default', 'fixed', 'round-robin', or a function as 'package.module:function'"
        yield problem(table, "partitioner", message, fix, option="partitioner")
    if chosen == "round-robin" and key_columns(table):
        message = f"{shown} sends records of one key to several partitions, and the table has key columns"
        fix = f"remove {table.option_name('partitioner')}: by default records of one key keep together"
        yield problem(table, "partitioner-keys", message, fix, option="partitioner")
