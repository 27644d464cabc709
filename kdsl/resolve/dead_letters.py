"""Dead letters: their topic is another one than the table's, their client can log in, and each record has one way."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.client_settings.kerberos import needs_java
from kdsl.client_settings.properties import Properties
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.cluster import SERVERS
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.declare.definition import TableDef
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.name_patterns import PatternError, compile_pattern
from kdsl.resolve.direction import directions_of
from kdsl.resolve.model import DeadLetterTopic
from kdsl.resolve.rule import problem
from kdsl.resolve.topics import LEGAL_NAME, LONGEST_NAME

_OF_DELIVERY = frozenset(
    ("acks", "enable.idempotence", "retries", "max.in.flight.requests.per.connection", "transactional.id")
)
"""Settings that the client of dead letters does not take over from the table: it writes idempotently."""


def remove_delivery_settings(properties: Properties) -> Properties:
    """Client properties without those that would weaken the delivery of dead letters."""
    return Properties({name: value for name, value in properties.items() if name not in _OF_DELIVERY})


def dead_letters_of(table: TableDef, direction: Direction) -> DeadLetterTopic | None:
    """The dead-letter topic of a valid table; None if it has none, or for a write."""
    options = table.options
    if options.dead_letter_topic is None or direction != "read":
        return None
    return DeadLetterTopic(
        options.dead_letter_topic,
        options.dead_letter_max_count,
        keyed=table.is_changelog,
        batch_reads=options.dead_letter_batch_reads,
        properties=Properties(options.dead_letter_properties),
    )


def check_dead_letters(table: TableDef, direction: Direction) -> Iterator[Problem]:
    """Report what is wrong with the dead letters of a read: their topic, their client, and options without effect.

    The topic must have a legal name and not be read by the table; the formats must not ignore parse errors, nor the
    table be in real-time mode. For a write only other options without a topic are errors; a topic is a warning if the
    table is declared for writing alone, because other tables may be read, too.
    """
    options = table.options
    topic, named = options.dead_letter_topic, table.option_name("dead_letter_topic")
    if topic is None:
        yield from _check_without_topic(table)
        return
    if direction == "write":
        if directions_of(table) == ("write",):
            only = table.setting("direction", "write")
            message = f"{named} has no effect with {only}: only a read has dead letters"
            fix = f"remove {named}, or {only}"
            yield problem(table, "dead-letter-write", message, fix, option="dead_letter_topic", severity="warning")
        return
    if not LEGAL_NAME.fullmatch(topic) or len(topic) > LONGEST_NAME or topic in (".", ".."):
        message = f"{named} names the topic {topic!r}, which Kafka does not allow"
        fix = f"use 1 to {LONGEST_NAME} of the characters a-z A-Z 0-9 . _ -"
        yield problem(table, "dead-letter-topic", message, fix, option="dead_letter_topic")
    if _reads(table, topic):
        message = f"{named} names the topic {topic!r}, which the table itself reads, so each letter would be read again"
        fix = f"name another topic, such as {topic + '.dead'!r}, and a pattern that does not match it"
        yield problem(table, "dead-letter-topic", message, fix, option="dead_letter_topic")
    for side, chosen in (("key", table.key_format), ("value", table.value_format)):
        if chosen is not None and chosen.is_lenient:
            message = (
                f"the format of the {side} ignores parse errors, so records that cannot be read are dropped, and "
                f"{named} would never get them"
            )
            fix = f"remove {chosen.deciding_option('is_lenient')[1]} from the {side}'s format, or remove {named}"
            yield problem(table, "dead-letter-lenient", message, fix, option="dead_letter_topic")
    if options.latency == "realtime":
        shown = table.setting("latency", "realtime")
        message = f"{named} does not work with {shown}, which runs no Python"
        fix = f"write {table.setting('latency', 'micro-batch')}, or remove {named}"
        yield problem(table, "dead-letter-realtime", message, fix, option="dead_letter_topic")
    yield from _check_client(table)


def _check_without_topic(table: TableDef) -> Iterator[Problem]:
    """Report other options of dead letters in a table without a topic for them."""
    options = table.options
    without_effect = {
        "dead_letter_max_count": options.dead_letter_max_count != NO_LIMIT,
        "dead_letter_batch_reads": options.dead_letter_batch_reads,
        "dead_letter_properties": bool(options.dead_letter_properties),
    }
    for attribute in (name for name, is_set in without_effect.items() if is_set):
        key = table.option_name("dead_letter_topic")
        message = f"{table.option_name(attribute)} has no effect without {key}"
        yield problem(table, "dead-letter-unused", message, f"add {key}, or remove it", option=attribute)


def _reads(table: TableDef, topic: str) -> bool:
    """Whether a topic of the letters is one that the table reads.

    False if the client of the letters has other brokers than the table's properties, or if the pattern is invalid.
    """
    options = table.options
    servers = Properties(options.dead_letter_properties).reveal().get(SERVERS)
    if servers is not None and servers != table.properties.reveal().get(SERVERS):
        return False
    if topic in options.topic:
        return True
    if options.topic_pattern is None:
        return False
    try:
        return compile_pattern(options.topic_pattern).fullmatch(topic) is not None
    except PatternError:  # another rule reports it
        return False


def _check_client(table: TableDef) -> Iterator[Problem]:
    """Report a login that the producer of the letters does not support, or else wrong settings of its own.

    Wrong are those that it does not accept, and those of its delivery guarantee, which is fixed. Those of the table are
    reported by `kdsl.resolve.client.client_properties`.
    """
    named = table.option_name("dead_letter_topic")
    own = Properties(table.options.dead_letter_properties)
    settings = (own if SERVERS in own else remove_delivery_settings(table.properties).merge(own)).reveal()
    if needs_java(settings):
        message = (
            f"{named} needs a login without GSSAPI (Kerberos): dead letters are written by librdkafka, also with the "
            "transport 'jvm', and the librdkafka of confluent-kafka does not support it"
        )
        fix = "write the letters to a cluster with another login, in "
        fix += f"{table.option_name('dead_letter_properties')} (with 'bootstrap.servers'), or remove {named}"
        yield problem(table, "dead-letter-login", message, fix, option="dead_letter_topic")
        return
    for name in sorted(_OF_DELIVERY & own.keys()):
        message = f"{table.option_name('dead_letter_properties')} sets {name!r}: dead letters are written idempotently"
        yield problem(table, "dead-letter-delivery", message, f"remove {name!r}", option="dead_letter_properties")
    for wrong in librdkafka_settings(settings, "producer").problems:
        if wrong.property in own and wrong.property not in _OF_DELIVERY:
            message = f"{table.option_name('dead_letter_properties')}: {wrong.message}"
            yield problem(
                table, wrong.code, message, wrong.fix, option="dead_letter_properties", severity=wrong.severity
            )
