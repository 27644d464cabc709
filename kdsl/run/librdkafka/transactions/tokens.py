"""The last token of transactional ids, as the group coordinators keep them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import PASSING, Brokers
from kdsl.run.cluster.group_offsets import GroupOffsets
from kdsl.run.librdkafka.transactions.token import Token, read_token

_SETTLING = 60.0
"""How long a transaction that is ending may take, in seconds, until its token can be read."""

TIMEOUT, RETENTION = "transaction.max.timeout.ms", "offsets.retention.minutes"


class TokenBrokers(Brokers):
    """The brokers, asked for tokens and for the settings that bound transactions.

    Args:
        cluster: Where they are.
        table: The table's name, for messages.
    """

    def __init__(self, cluster: Cluster, table: str) -> None:
        super().__init__(cluster, table)
        self._offsets_of = GroupOffsets(cluster)

    def token(self, id_: str, *, stable: bool = True) -> Token | None:
        """The last token of a transactional id; it is kept in the group of the same name.

        Args:
            id_: The id.
            stable: Wait for the end of a transaction that is ending; else it may be the last but one.

        Raises:
            KafkaReadError: It cannot be read.
            ExactlyOnceError: It was written by a newer kdsl.
        """
        until, pause = time.monotonic() + _SETTLING, 0.02
        while True:
            left = until - time.monotonic()
            code, found = self._offsets_of.read(id_, min(10.0, max(1.0, left)), stable=stable)
            if code == KafkaError.NO_ERROR:
                break
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            error = KafkaError(code)
            if left <= 0 or (code not in PASSING and code != KafkaError.UNSTABLE_OFFSET_COMMIT):
                raise self._told(error, f"the token in the group {id_!r}")
            time.sleep(pause)
            pause = min(1.0, pause * 2)
        tokens = [read_token(text, offset) for offset, text in found]
        return max((t for t in tokens if t is not None), key=lambda t: t.number, default=None)

    def ids(self, prefix: str) -> list[str]:
        """The transactional ids of a prefix that have tokens, as far as this user may see them."""
        own = re.compile(re.escape(prefix) + "-(0|[1-9][0-9]*)")
        try:
            return [id_ for id_ in self.groups() if own.fullmatch(id_)]
        except errors.NotAllowedError:
            return []

    def settings(self, names: Iterable[str]) -> dict[str, int]:
        """Numbers among a broker's settings; those that this user may not see are left out."""
        metadata = self._patiently(lambda seconds: self._admin.list_topics(timeout=seconds))
        broker = next(iter(metadata.brokers))
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        found = self._ask(lambda seconds: self._admin.describe_configs([resource], request_timeout=seconds))[resource]
        if isinstance(found, KafkaError):
            return {}
        return {name: int(found[name].value) for name in names if name in found}
