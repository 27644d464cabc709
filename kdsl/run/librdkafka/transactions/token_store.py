"""Reads the last tokens of transactional ids, which the group coordinators store."""

from __future__ import annotations

import re
from collections.abc import Iterable

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.retry import Backoff, Deadline, retry
from kdsl.run.admin.errors import RETRIABLE, NotAllowedError
from kdsl.run.admin.group_offsets import GroupOffsets
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.transactions.token import Token, read_token

_SETTLING = 60.0
"""How long to wait for the end of a transaction that is ending, in seconds, until its token can be read."""

_RETRIABLE = RETRIABLE | {KafkaError.UNSTABLE_OFFSET_COMMIT}

TIMEOUT, RETENTION = "transaction.max.timeout.ms", "offsets.retention.minutes"


class TokenAdmin(LibrdkafkaAdmin):
    """An admin client that also reads tokens, and the settings of topics and brokers that limit transactions."""

    def __init__(self, cluster: Cluster, table: str) -> None:
        super().__init__(cluster, table)
        self._offsets_of = GroupOffsets(cluster)

    def token(self, id_: str, *, stable: bool = True) -> Token | None:
        """Read the last token of a transactional id from the group of the same name; None if there is none.

        Args:
            id_: The transactional id.
            stable: Whether to wait for the end of a transaction that is ending; without that, the token may be the last
                but one.
        """
        code, offsets = retry(
            lambda timeout: self._offsets_of.read(id_, min(10.0, max(1.0, timeout)), stable=stable),
            lambda result: result[0] not in _RETRIABLE,
            Deadline(_SETTLING),
            pause=Backoff(0.02, 1.0),
        )
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        if code != KafkaError.NO_ERROR:
            raise self._requests.status.read_error(KafkaError(code), f"the token in the group {id_!r}")
        tokens = [read_token(text, offset) for _, offset, text in offsets]
        return max((t for t in tokens if t is not None), key=lambda t: t.number, default=None)

    def ids(self, prefix: str) -> list[str]:
        """List the transactional ids of a prefix (``PREFIX-0`` and so on) whose groups exist.

        Empty if this user may not list groups.
        """
        own = re.compile(re.escape(prefix) + "-(0|[1-9][0-9]*)")
        try:
            return [id_ for id_ in self.groups() if own.fullmatch(id_)]
        except NotAllowedError:
            return []

    def replicas(self, topic: str) -> int:
        """Return the fewest replicas that a partition of a topic has; 0 if the topic is missing or not visible."""
        names = TopicCollection([topic])
        description = self._requests.ask(
            lambda client, timeout: client.describe_topics(names, request_timeout=timeout)
        )[topic]
        return 0 if isinstance(description, KafkaError) else min(len(p.replicas) for p in description.partitions)

    def settings(self, names: Iterable[str]) -> dict[str, int]:
        """Ask one broker for some numeric settings, and return those that it has; none if it does not show them."""
        broker = next(iter(self._requests.list_topics().brokers))
        config = self._describe_configs(ConfigResource(ResourceType.BROKER, str(broker)))
        if isinstance(config, KafkaError):
            return {}
        return {name: int(config[name].value) for name in names if name in config}
