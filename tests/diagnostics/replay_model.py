"""Random steps of a topic and its dead letters, and replays of them, beside a plain model of what must become of each.

The model knows nothing of kdsl. It numbers all records in the order in which they were written, and knows of each
which replay may send it, must send it, or must not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.diagnostics import replay as replays
from kdsl.diagnostics.dead_letters import Selection
from kdsl.diagnostics.replay_ledger import Ledger, send
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.diagnostics.replays import Place, fix, letter, read, write

KEYS, TABLES, REASONS = "abcd", "TU", ("DATE", "INT")


@attrs.define(eq=False)
class Written:
    """A record that was written to the topic, in one of its lives; a bad one has letters."""

    number: int
    life: int
    place: Place
    key: str
    bad: bool = False
    tables: set[str] = attrs.field(factory=set)
    reason: str = ""
    attempts: int = 1
    complete: bool = False
    sent_to: set[str] = attrs.field(factory=set)
    tried: set[str] = attrs.field(factory=set)


@attrs.frozen
class Choice:
    """The arguments of a replay."""

    to: str
    table: str | None
    reason: str
    max_attempts: int
    force: bool

    def selects(self, one: Written) -> bool:
        return bool(one.tables) and (self.table is None or self.table in one.tables) and self.reason in one.reason


class Steps:
    """Random steps; each attribute is a part of the world as the model sees it."""

    def __init__(self, kafka: RunningKafka, make_topic: MakeTopic, seed: int) -> None:
        self.kafka, self.random = kafka, random.Random(seed)
        self.cluster = Cluster(kafka.bootstrap_servers)
        self.keyed = self.random.random() < 0.75
        self.partitions = self.random.randint(1, 2)
        self.topic = make_topic(f"replay-{seed}", partitions=self.partitions)
        self.target = make_topic(f"replay-{seed}-target", partitions=2)
        self.dead = make_topic(f"replay-{seed}-dead", partitions=self.random.randint(1, 2))
        self.written: list[Written] = []
        self.life = 0
        self.is_trimmed = False
        self.seen: set[tuple[str, str]] = set()
        self.log: list[str] = []

    def run(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take some steps, then replay everything to its end."""
        weights = {self.write: 6, self.replay: 4, self.raise_partitions: 1, self.recreate: 1, self.trim: 1}
        for step in self.random.choices(list(weights), list(weights.values()), k=count):
            if step == self.replay:
                self.replay(monkeypatch)
            else:
                step()  # type: ignore[operator]
        self.check(Choice(self.topic, None, "", 99, False), monkeypatch, interrupt=False)
        self.check(Choice(self.topic, None, "", 99, False), monkeypatch, interrupt=False)

    def write(self) -> None:
        """Write a few records. The key's partition may be another one than before, as with another partitioner."""
        for _ in range(self.random.randint(1, 4)):
            number, key = len(self.written), self.random.choice(KEYS)
            partition = self.random.randrange(self.partitions)
            place = write(self.kafka, self.topic, f"{number}", key, partition, at=number)
            one = Written(number, self.life, place, key, self.random.random() < 0.6)
            self.written.append(one)
            if one.bad:
                one.reason, one.attempts = self.random.choice(REASONS), self.random.choice((1, 1, 2, 3))
                self.write_letters(one)
        self.log.append(f"write to {len(self.written)}")

    def write_letters(self, one: Written) -> None:
        """Write letters of a record: of one or two tables, repeated, cut or complete, in any order."""
        letters = []
        for _ in range(self.random.randint(1, 3)):
            table, cut = self.random.choice(TABLES), self.random.random() < 0.2
            place = attrs.evolve(one.place, value=one.place.value[:0]) if cut else one.place
            more = {"keyed": "true"} if self.keyed else {}
            more |= {"truncated": "9"} if cut else {}
            letters.append(letter(place, table=table, reason=one.reason, attempts=str(one.attempts), **more))
            one.tables.add(table)
            one.complete |= not cut
        self.kafka.produce(self.dead, *letters)

    def raise_partitions(self) -> None:
        self.partitions += 1
        self.kafka.add_partitions(self.topic, self.partitions)
        self.log.append("raise")

    def recreate(self) -> None:
        self.kafka.delete_topic(self.topic)
        self.partitions = self.random.randint(1, 2)
        self.kafka.create_topic(self.topic, self.partitions)
        self.kafka.close()  # its producer would not look for partitions that it does not know for minutes
        self.life += 1
        self.is_trimmed = False
        self.seen = {pair for pair in self.seen if pair[0] != self.topic}
        for one in self.written:
            one.sent_to.discard(self.topic)
            one.tried.discard(self.topic)
        self.log.append("recreate")

    def trim(self) -> None:
        """Delete the beginning of each partition, as retention does."""
        ends, starts = self.kafka.end_offsets(self.topic), self.kafka.start_offsets(self.topic)
        self.kafka.delete_records(self.topic, {p: self.random.randint(starts[p], end) for p, end in ends.items()})
        self.is_trimmed = True
        self.log.append("trim")

    def replay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pick = self.random.choice
        to = pick(["original", "original", self.topic, self.target])
        choice = Choice(
            to, pick([None, *TABLES]), pick(["", "", "A", "I"]), pick([2, 3, 4]), self.random.random() < 0.1
        )
        self.check(choice, monkeypatch, interrupt=self.random.random() < 0.4)

    def check(self, choice: Choice, monkeypatch: pytest.MonkeyPatch, *, interrupt: bool) -> None:
        """Replay, and compare what the target got with what it must and may get."""
        self.log.append(f"{choice}{' interrupted' if interrupt else ''}")
        topic = self.topic if choice.to == "original" else choice.to
        rules = {one: self.rule(one, choice, topic) for one in self.written if one.bad}
        selection = Selection(choice.table, {"reason": choice.reason})
        done = None
        with monkeypatch.context() as patch:
            patch.setattr(replays, "BATCH", self.random.choice((1, 3, 500)))
            if interrupt:
                patch.setattr(replays, "send", self.dying(send))
                patch.setattr(Ledger, "note", self.dying(Ledger.note))
            try:
                done = replays.replay(
                    self.cluster, self.dead, choice.to, selection=selection, change=fix,
                    max_attempts=choice.max_attempts, force=choice.force,
                )  # fmt: skip
            except KeyboardInterrupt:
                assert interrupt
                for one in rules:
                    one.tried.add(topic)
        got = self.take_replayed(topic)
        assert len({*got}) == len(got), f"sent twice: {got}"
        for one, rule in rules.items():
            assert rule != "never" or one not in got, f"{one} was sent"
            assert rule != "must" or one in got or done is None, f"{one} was not sent"
            assert one not in got or topic not in one.sent_to, f"{one} was sent again"
            if one in got:
                one.sent_to.add(topic)
        if done is not None:
            selected = [one for one in rules if choice.selects(one)]
            sent = [one for one in selected if topic in one.sent_to]
            assert len(sent) - done.unknown <= done.sent + done.done <= len(sent), f"{done}, but {sent} were sent"
            assert done.is_complete == (done.sent + done.done == len(selected))
            assert done.unselected == len(rules) - len(selected)

    def rule(self, one: Written, choice: Choice, topic: str) -> str:
        """Whether a replay must, may or must never send a record."""
        recreated = one.life != self.life
        if not choice.selects(one) or topic in one.sent_to or not one.complete or one.attempts >= choice.max_attempts:
            return "never"
        if choice.to == "original" and recreated:
            return "never"
        # What an interrupted replay has sent may be deleted.
        may = "may" if self.is_trimmed and topic in one.tried else "must"
        if choice.force or not self.keyed:
            return may
        in_topic = [w for w in self.written if w.life == self.life and w.key == one.key and w.number > one.number]
        in_target = [w for w in self.written if topic in w.sent_to and w.key == one.key and w.number > one.number]
        if in_topic or in_target:
            return "never"
        return "may" if self.is_trimmed else may

    def take_replayed(self, topic: str) -> list[Written]:
        """The records that replays have sent to a topic since the last call."""
        new = [(text, id_) for text, id_ in read(self.kafka, topic) if id_ and (topic, id_) not in self.seen]
        assert all(text.startswith("fixed ") for text, _ in new)
        self.seen |= {(topic, id_) for _, id_ in new}
        return [self.written[int(text.removeprefix("fixed "))] for text, _ in new]

    def dying(self, function: Callable[..., None]) -> Callable[..., None]:
        """A function that may die before or after it does its work."""

        def call(*arguments: Any, **options: Any) -> None:
            point = self.random.choice(("before", "after", "", "", ""))
            if point == "before":
                raise KeyboardInterrupt
            function(*arguments, **options)
            if point:
                raise KeyboardInterrupt

        return call


def run_steps(
    kafka: RunningKafka, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, seed: int, count: int
) -> None:
    """Take random steps; the error names the seed and the steps."""
    steps = Steps(kafka, make_topic, seed)
    try:
        steps.run(count, monkeypatch)
    except Exception as e:
        raise AssertionError(f"seed {seed}, after {'; '.join(steps.log)}: {e}") from e
