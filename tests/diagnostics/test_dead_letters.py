"""Replays of dead letters: their consumer groups, and where later records of a key are looked for; without brokers."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import MagicMock

import attrs
import pyarrow as pa
import pytest

from kdsl.cluster import Cluster
from kdsl.diagnostics import dead_letters
from kdsl.diagnostics.dead_letters import ORIGINAL, DeadLetter, Selection, default_group, replay
from kdsl.errors import DeadLetterError
from kdsl.run.dead_letters.headers import KEYED, OFFSET, PARTITION, TOPIC
from kdsl.run.records.metadata import HEADERS

LETTERS, TARGET = Cluster("letters:1"), Cluster("target:1")


def test_a_replay_within_a_cluster_has_the_group_of_earlier_versions() -> None:
    assert default_group("orders.dead", "original", Selection()) == "kdsl-dlq-orders.dead-b4f9b0ee"
    assert default_group("d", "t", Selection("orders", {"reason": "JSON"})) == "kdsl-dlq-d-1cd061f6"


def test_each_target_cluster_has_its_own_group() -> None:
    groups = [
        default_group("d", "t", Selection(), None if servers is None else Cluster(servers))
        for servers in (None, "a:1,b:1", "b:1, a:1", "c:1")
    ]

    assert groups[1] == groups[2]
    assert len(set(groups)) == 3


@attrs.define
class Brokers:
    """Clusters with letters of the records of two keys, where a later record of the first key may exist.

    Attributes:
        originals: The clusters that have the original topic ``orders``, with the offset of the last record of ``a``.
        sent: The keys of the records that were sent.
    """

    originals: dict[str, int] = attrs.field(factory=dict)
    sent: list[bytes | None] = attrs.field(factory=list)

    def open_admin(self, cluster: Cluster, _: str) -> MagicMock:
        exists = cluster.bootstrap_servers in self.originals
        return MagicMock(**{"topics.side_effect": lambda names: dict.fromkeys(names) if exists else {}})

    def read(self, cluster: Cluster, topic: str, *_: object) -> Iterator[pa.RecordBatch]:
        if topic == "dead":
            of_letters = [(KEYED, b"true"), (TOPIC, b"orders"), (PARTITION, b"0")]
            headers = [[*of_letters, (OFFSET, str(offset).encode())] for offset in (3, 4)]
            yield self.batch(topic, [b"a", b"b"], [0, 1], headers)
        else:
            yield self.batch(topic, [b"a"], [self.originals[cluster.bootstrap_servers]], [[]])

    @staticmethod
    def batch(
        topic: str, keys: list[bytes], offsets: list[int], headers: list[list[tuple[str, bytes]]]
    ) -> pa.RecordBatch:
        count = len(keys)
        return pa.RecordBatch.from_pydict(
            {
                "topic": pa.repeat(topic, count),
                "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.repeat(pa.scalar(1, pa.int64()), count),
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(keys, pa.binary()),
                "headers": pa.array([[{"key": k, "value": v} for k, v in one] for one in headers], HEADERS),
            }
        )

    def send(self, cluster: Cluster, letters: list[DeadLetter], _: str) -> None:
        assert cluster is TARGET
        self.sent += [letter.key for letter in letters]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(dead_letters, "open_admin", brokers.open_admin)
    monkeypatch.setattr(dead_letters, "_read", brokers.read)
    monkeypatch.setattr(dead_letters, "_send", brokers.send)
    monkeypatch.setattr(dead_letters, "_count_partitions", lambda *_: 1)
    return brokers


@pytest.mark.parametrize(
    ("originals", "sent"),
    [
        ({"target:1": 9}, [b"b"]),
        ({"target:1": 2}, [b"a", b"b"]),
        ({"letters:1": 9}, [b"b"]),
        ({"target:1": 2, "letters:1": 9}, [b"a", b"b"]),  # the letters may be on another cluster than the records
    ],
)
def test_a_replay_to_another_topic_finds_the_original_topic_on_either_cluster(
    brokers: Brokers, originals: dict[str, int], sent: list[bytes]
) -> None:
    brokers.originals = originals

    result = replay(LETTERS, "dead", "fixed", target=TARGET, from_start=True)

    assert (result.sent, result.outdated) == (len(sent), 2 - len(sent))
    assert brokers.sent == sent


@pytest.mark.parametrize(
    ("to", "originals", "places"),
    [("fixed", {}, "target:1 or letters:1"), (ORIGINAL, {"letters:1": 9}, "target:1")],
)
def test_records_by_key_without_an_original_topic_are_only_sent_if_forced(
    brokers: Brokers, to: str, originals: dict[str, int], places: str
) -> None:
    brokers.originals = originals

    with pytest.raises(
        DeadLetterError, match=rf"'orders', .*, is not on {places}, so that later .*force=True, --force"
    ):
        replay(LETTERS, "dead", to, target=TARGET, from_start=True)
    assert not brokers.sent

    assert replay(LETTERS, "dead", to, target=TARGET, from_start=True, force=True).sent == 2
