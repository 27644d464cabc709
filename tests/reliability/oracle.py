"""The judge of all scenarios: what was sent against what a reader saw.

A record says who sent it: ``{"producer": …, "lane": …, "seq": …, "transaction": …}``. A lane is a sequence whose order
must hold (an input partition); its numbers rise. The errors have Jepsen's names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import attrs

from kdsl.testing import Record, RunningKafka
from tests.transactions import settle

if TYPE_CHECKING:
    from tests.reliability.harness import Life

Fate = Literal["committed", "aborted", "unknown"]


@attrs.frozen(order=True)
class Mark:
    """What a record says of itself."""

    producer: str
    lane: int
    seq: int
    transaction: str | None = attrs.field(default=None, eq=False, order=False)

    def record(self, partition: int | None = None) -> Record:
        """The record, whose key is its lane, so that a copy by key keeps lanes in order."""
        value = json.dumps(attrs.asdict(self), separators=(",", ":"))
        return Record(value, key=f"{self.producer}/{self.lane}", partition=partition)

    @classmethod
    def of(cls, value: bytes | str | None) -> Mark:
        """The mark of a message value."""
        document = json.loads(value or b"")
        return cls(document["producer"], document["lane"], document["seq"], document.get("transaction"))


@attrs.frozen
class Seen:
    """A record as a reader met it, at its place in one output partition."""

    mark: Mark
    partition: int = 0
    offset: int = 0


@attrs.frozen
class Verdict:
    """What is wrong between what was sent and what was seen.

    Attributes:
        duplicates: How often each record was seen too often.
        lost: Records that were acknowledged or committed, and not seen.
        misordered: Pairs of one lane in one partition whose first appearances are the wrong way round.
        unexpected: Records that nobody sent.
        aborted_reads: Records of transactions that were aborted, and were seen (G1a).
        torn: Transactions that were seen in part.
    """

    duplicates: Mapping[Mark, int] = attrs.field(factory=dict)
    lost: tuple[Mark, ...] = ()
    misordered: tuple[tuple[Mark, Mark], ...] = ()
    unexpected: tuple[Mark, ...] = ()
    aborted_reads: tuple[Mark, ...] = ()
    torn: tuple[str, ...] = ()

    @property
    def exactly_once(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.duplicates and self.at_least_once

    @property
    def at_least_once(self) -> bool:
        """Whether nothing but duplicates is wrong."""
        return not (self.lost or self.misordered or self.unexpected or self.aborted_reads or self.torn)

    def __str__(self) -> str:
        sample = {
            "duplicate": self.duplicates,
            "lost": self.lost,
            "misordered": self.misordered,
            "unexpected": self.unexpected,
            "aborted read": self.aborted_reads,
            "torn": self.torn,
        }
        results = [f"{len(these)} {name}: {list(these)[:5]}" for name, these in sample.items() if these]
        return "; ".join(results) or "exactly once"


def judge(sent: Iterable[Mark], seen: Iterable[Seen], fates: Mapping[str, Fate] | None = None) -> Verdict:
    """Compare what was sent with what was seen.

    Args:
        sent: All records that were sent; those of no transaction were acknowledged.
        seen: What a reader saw.
        fates: How transactions ended; those that are not named were committed.
    """
    fates = fates or {}
    all_sent = list(sent)
    records = sorted(seen, key=lambda one: (one.partition, one.offset))
    counts = Counter(one.mark for one in records)
    fate = {mark: fates.get(mark.transaction or "", "committed") for mark in all_sent}
    parts: dict[str, list[bool]] = {}
    for mark in all_sent:
        if mark.transaction is not None:
            parts.setdefault(mark.transaction, []).append(mark in counts)
    return Verdict(
        duplicates={mark: count - 1 for mark, count in sorted(counts.items()) if count > 1},
        lost=tuple(sorted(mark for mark in all_sent if fate[mark] == "committed" and mark not in counts)),
        misordered=tuple(_find_misordered(records)),
        unexpected=tuple(sorted(mark for mark in counts if mark not in fate)),
        aborted_reads=tuple(sorted(mark for mark in counts if fate.get(mark) == "aborted")),
        torn=tuple(sorted(name for name, item in parts.items() if any(item) and not all(item))),
    )


def check_exactly_once(life: Life, sent: Iterable[Mark], kafka: RunningKafka, topic: str) -> None:
    """The last run of a job came to its end, and a reader of a topic sees what was sent once, in order."""
    assert life.code == 0, life.log[-4000:]
    settle(kafka, topic)
    verdict = judge(sent, look(kafka, topic))
    assert verdict.exactly_once, str(verdict)


def _find_misordered(records: Iterable[Seen]) -> Iterator[tuple[Mark, Mark]]:
    met: set[Mark] = set()
    last: dict[tuple[int, str, int], Mark] = {}
    for one in records:
        lane = (one.partition, one.mark.producer, one.mark.lane)
        if one.mark in met:
            continue
        met.add(one.mark)
        if lane in last and last[lane].seq > one.mark.seq:
            yield last[lane], one.mark
        last[lane] = one.mark


def marks(producer: str, lanes: int, count: int, start: int = 0) -> list[Mark]:
    """``count`` marks, dealt out to the lanes in turn."""
    return [Mark(producer, n % lanes, start + n // lanes) for n in range(count)]


def send(kafka: RunningKafka, topic: str, sent: Iterable[Mark]) -> list[Mark]:
    """Write marks, each into the partition of its lane; what was sent."""
    these = list(sent)
    kafka.produce(topic, *(mark.record(mark.lane) for mark in these))
    return these


def look(kafka: RunningKafka, topic: str, *, committed: bool = True) -> list[Seen]:
    """All marks that a topic holds."""
    rows = kafka.read(topic, committed=committed)
    return [Seen(Mark.of(m.value()), m.partition() or 0, m.offset() or 0) for m in rows]
