"""Descriptions of topics in place of the brokers' own: when brokers learn of a topic cannot be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Node, TopicCollection, TopicPartitionInfo, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._topic import TopicDescription

Descriptions = Mapping[str, "Future[TopicDescription]"]
Describe = Callable[..., Descriptions]
UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART


def describe_as(topics: Mapping[str, int], error: int = UNKNOWN) -> Describe:
    """A method of `AdminClient` that knows these topics, by their numbers of partitions, without asking brokers.

    Others have the error.
    """

    def describe(_: AdminClient, wanted: TopicCollection, **__: Any) -> Descriptions:
        results: dict[str, Future[TopicDescription]] = {}
        for name in wanted.topic_names:
            results[name] = Future()
            if name in topics:
                node = Node(1, "localhost", 1)
                partitions = [TopicPartitionInfo(n, node, [node], [node]) for n in range(topics[name])]
                results[name].set_result(TopicDescription(name, Uuid(0, 1), False, partitions))
            else:
                results[name].set_exception(KafkaException(KafkaError(error)))
        return results

    return describe


def on_descriptions(monkeypatch: pytest.MonkeyPatch, notice: Callable[[list[str]], None]) -> None:
    """Call a function with the names of each question about topics that brokers have answered."""
    describe = AdminClient.describe_topics

    def describe_and_notice(client: AdminClient, wanted: TopicCollection, **more: Any) -> Descriptions:
        futures: Descriptions = describe(client, wanted, **more)
        wait(futures.values())
        if all(is_answer(future) for future in futures.values()):
            notice(list(wanted.topic_names))
        return futures

    monkeypatch.setattr(AdminClient, "describe_topics", describe_and_notice)


def is_answer(future: Future[TopicDescription]) -> bool:
    """Whether a broker has described a topic, or said that it does not know it."""
    error = future.exception()
    return error is None or (isinstance(error, KafkaException) and error.args[0].code() == UNKNOWN)


def hide_at_first(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Answer the first question about topics as a broker that knows none; return the names of all questions."""
    describe, hidden = AdminClient.describe_topics, describe_as({})
    questions: list[list[str]] = []

    def describe_later(client: AdminClient, wanted: TopicCollection, **more: Any) -> Descriptions:
        questions.append(list(wanted.topic_names))
        return (describe if len(questions) > 1 else hidden)(client, wanted, **more)

    monkeypatch.setattr(AdminClient, "describe_topics", describe_later)
    return questions
