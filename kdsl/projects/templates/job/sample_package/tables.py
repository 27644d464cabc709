"""The topics of the job, as tables."""

from __future__ import annotations

from datetime import datetime

from kdsl import Col, DeadLetters, Json, KafkaTable, Key


class SampleTable(
    KafkaTable,
    topic="sample-topic",
    value=Json(),
    startup="earliest",
    dead_letters=DeadLetters("sample-topic-dead"),
):
    """The rows that the job reads; records that cannot be read go to a topic of their own."""

    id: Col[str]
    amount: Col[float]
    time: Col[datetime]


class SampleTableLarge(
    KafkaTable,
    topic="sample-topic-large",
    key=Json(),
    value=Json(),
    startup="earliest",
    delivery="exactly-once",
    transactional_id_prefix="sample-project",
):
    """The large rows, each once: other programs read them with isolation.level=read_committed."""

    id: Key[str]
    amount: Col[float]
    time: Col[datetime]
