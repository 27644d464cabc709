"""Replays of dead letters on a real Kafka: each record is sent once, an old one never over a newer one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.diagnostics import replay as replays
from kdsl.diagnostics.dead_letters import Selection, count_letters, read_letters
from kdsl.diagnostics.replay import Replay, replay
from kdsl.diagnostics.replay_ledger import Ledger, send
from kdsl.errors import DeadLetterError, LeaseHeldError
from kdsl.run.dead_letters.headers import Origin
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.diagnostics.replays import Place, letter, read, read_replayed, write


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(params=["original", "other"])
def other(request: pytest.FixtureRequest, kdsl_topic: MakeTopic) -> Callable[[str], str]:
    """Chooses the target of the records of a topic: that topic itself, or another one."""
    topic = kdsl_topic("target") if request.param == "other" else ""
    return lambda original: topic or original


class TestOnce:
    def test_overlapping_selections_and_names_of_a_target_send_a_record_once(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        a, b, c = (write(kdsl_kafka, topic, value) for value in "abc")
        kdsl_kafka.produce(dead, letter(a, reason="DATE"), letter(b, reason="INT"), letter(c, table="other"))

        by_reason = replay(cluster, dead, "original", selection=Selection(where={"reason": "DATE"}))
        by_table = replay(cluster, dead, "original", selection=Selection("T"))
        everything = replay(cluster, dead, topic)

        assert by_reason == Replay(sent=1, unselected=2)
        assert by_table == Replay(sent=1, done=1, unselected=1)
        assert everything == Replay(sent=1, done=2)
        assert read_replayed(kdsl_kafka, topic) == ["a", "b", "c"]

    def test_another_target_gets_all_records(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, target, dead = kdsl_topic(), kdsl_topic("target"), kdsl_topic("dead")
        kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "a")))

        assert [replay(cluster, dead, to).sent for to in ("original", target, target)] == [1, 1, 0]
        kdsl_kafka.delete_topic(target)
        kdsl_kafka.create_topic(target)
        assert replay(cluster, dead, target).sent == 1
        assert [read_replayed(kdsl_kafka, one) for one in (topic, target)] == [["a"], ["a"]]

    def test_more_attempts_and_force_send_only_what_was_left(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        old, new, tired = (write(kdsl_kafka, topic, value, key) for value, key in ("ak", "bk", "cx"))
        letters = [letter(one, keyed="true") for one in (old, new)]
        kdsl_kafka.produce(dead, *letters, letter(tired, attempts="3"))

        assert replay(cluster, dead, "original") == Replay(sent=1, outdated=1, exhausted=1)
        assert replay(cluster, dead, "original", max_attempts=4) == Replay(sent=1, done=1, outdated=1)
        assert replay(cluster, dead, "original", max_attempts=4, force=True) == Replay(sent=1, done=2)
        assert read_replayed(kdsl_kafka, topic) == ["b", "c", "a"]

    def test_a_complete_letter_replaces_a_cut_one_and_letters_of_two_tables_are_one_record(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        a, b, c = (write(kdsl_kafka, topic, value) for value in ("aaa", "bbb", "ccc"))
        cut = attrs.evolve(a, value=b"a"), attrs.evolve(c, value=b"c")
        kdsl_kafka.produce(dead, letter(cut[0], truncated="3"), letter(a), letter(a, truncated="3"))
        kdsl_kafka.produce(dead, letter(b, table="U"), letter(b), letter(cut[1], truncated="3"))

        assert replay(cluster, dead, "original", selection=Selection("U")) == Replay(sent=1, repeated=1, unselected=2)
        assert replay(cluster, dead, "original") == Replay(sent=1, done=1, truncated=1, repeated=3)
        assert read_replayed(kdsl_kafka, topic) == ["bbb", "aaa"]

    def test_letters_of_another_topic_about_the_same_record_by_key_are_done(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, other: Callable[[str], str]
    ) -> None:
        topic, of_table, of_other_table = kdsl_topic(), kdsl_topic("dead"), kdsl_topic("other-dead")
        place = write(kdsl_kafka, topic, "a")
        for dead in (of_table, of_other_table):
            kdsl_kafka.produce(dead, letter(place, keyed="true"))

        assert replay(cluster, of_table, other(topic)) == Replay(sent=1)
        assert replay(cluster, of_other_table, other(topic)) == Replay(done=1)
        assert replay(cluster, of_other_table, other(topic), force=True) == Replay(done=1)

    def test_an_open_transaction_that_hides_notes_is_refused(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "a")))
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": dead})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(dead, b"open")
        producer.flush(60)
        committed = cluster.with_properties({"isolation.level": "read_committed"})

        with pytest.raises(DeadLetterError, match=r"a transaction is open in the topic .*, partition 0, from offset 1"):
            replay(committed, dead, "original")
        producer.abort_transaction(60)
        assert replay(committed, dead, "original") == Replay(sent=1)

    def test_what_replays_note_is_not_a_letter(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead", config={"cleanup.policy": "compact"})
        kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "a")))
        assert replay(cluster, dead, "original") == Replay(sent=1)

        assert [one.value for one in read_letters(cluster, dead)] == [b"a"]
        assert count_letters(read_letters(cluster, dead)) == {("T", "value", "bad"): 1}

    def test_the_letters_of_kafka_connect_are_distinguished_by_their_times(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        one = Place(topic, 0, 0, None, b"first", 1_000)
        kdsl_kafka.produce(dead, letter(one))
        assert replay(cluster, dead, "original") == Replay(sent=1)
        kdsl_kafka.produce(dead, letter(attrs.evolve(one, timestamp=2_000, value=b"second")))

        assert replay(cluster, dead, "original") == Replay(sent=1, done=1)
        assert read_replayed(kdsl_kafka, topic) == ["first", "second"]


class TestInterruptions:
    """A replay dies at a point, and the next one sends what is missing."""

    @pytest.mark.parametrize("note", ["sending", "sent"])
    @pytest.mark.parametrize("point", ["before", "after"])
    def test_nothing_is_sent_twice_or_left(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        other: Callable[[str], str],
        monkeypatch: pytest.MonkeyPatch,
        note: str,
        point: str,
    ) -> None:
        topic, dead = kdsl_topic(partitions=2), kdsl_topic("dead", partitions=2)
        places = [write(kdsl_kafka, topic, f"{i}", f"{i}", i % 2) for i in range(6)]
        kdsl_kafka.produce(dead, *map(letter, places))
        monkeypatch.setattr(replays, "BATCH", 2)
        interrupt_at(monkeypatch, note, point, call=2)
        with pytest.raises(KeyboardInterrupt):
            replay(cluster, dead, other(topic))
        monkeypatch.undo()

        dry = replay(cluster, dead, other(topic), dry_run=True)
        result = replay(cluster, dead, other(topic))

        assert result == dry == Replay(sent=result.sent, done=6 - result.sent)
        assert result.sent == (4 if note == "sending" else 2)
        assert sorted(read_replayed(kdsl_kafka, other(topic))) == [f"{i}" for i in range(6)]
        assert replay(cluster, dead, other(topic)) == Replay(done=6)

    def test_an_outcome_that_the_target_cannot_show_is_unknown(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "a")))
        interrupt_at(monkeypatch, "sent", "before", call=1)
        with pytest.raises(KeyboardInterrupt):
            replay(cluster, dead, "original")
        monkeypatch.undo()
        kdsl_kafka.delete_records(topic, {0: -1})
        command = ["dlq", "replay", dead, "--to", "original", "--bootstrap", cluster.bootstrap_servers]

        left = CliRunner().invoke(app, command)
        assert left.exit_code == 3
        assert "1  left: an interrupted replay may have sent them" in left.stdout
        assert kdsl_kafka.read(topic) == []
        sent = CliRunner().invoke(app, [*command, "--resend-unknown"])
        assert (sent.exit_code, read_replayed(kdsl_kafka, topic)) == (0, ["a"])

    def test_a_failed_record_is_not_reported_as_sent(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(config={"max.message.bytes": "2000"}), kdsl_topic("dead")
        small, large = (write(kdsl_kafka, topic, value, value) for value in "ab")
        kdsl_kafka.produce(dead, letter(small), letter(attrs.evolve(large, value=b"b" * 3000)))

        for _ in range(2):
            with pytest.raises(DeadLetterError, match="cannot be sent"):
                replay(cluster, dead, "original")
        result = replay(cluster, dead, "original", change=lambda one: attrs.evolve(one, value=(one.value or b"")[:9]))

        assert result == Replay(sent=2 - result.done, done=result.done)
        assert sorted(read_replayed(kdsl_kafka, topic)) == ["a", "b" * 9]


def interrupt_at(monkeypatch: pytest.MonkeyPatch, note: str, point: str, call: int) -> None:
    """Let a replay die before or after it writes a kind of note for the ``call``-th time."""
    write_note, calls = Ledger.note, []

    def write_or_die(self: Any, state: str, *arguments: Any) -> None:
        calls.append(state)
        dies = state == note and calls.count(note) == call
        if dies and point == "before":
            raise KeyboardInterrupt
        write_note(self, state, *arguments)  # type: ignore[arg-type]
        if dies:
            raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "note", write_or_die)


class TestNewerRecords:
    def test_a_newer_record_in_another_partition_is_found_and_an_older_one_is_not(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, other: Callable[[str], str]
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        places = [write(kdsl_kafka, topic, "old", key, at=1) for key in "ab"]
        kdsl_kafka.add_partitions(topic, 2)
        write(kdsl_kafka, topic, "new", "a", 1, at=2)
        places.append(write(kdsl_kafka, topic, "newest", "b", 1, at=3))
        kdsl_kafka.produce(dead, *(letter(place, keyed="true") for place in places))

        assert replay(cluster, dead, other(topic)) == Replay(sent=1, outdated=2)
        assert read_replayed(kdsl_kafka, other(topic)) == ["newest"]

    def test_a_newer_record_in_the_target_is_found(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, target, dead = kdsl_topic(), kdsl_topic("target", partitions=2), kdsl_topic("dead")
        a, b = (write(kdsl_kafka, topic, "old", key, at=1) for key in "ab")
        write(kdsl_kafka, target, "new", "a", 1, at=2)
        write(kdsl_kafka, target, "older", "b", 1, at=0)
        kdsl_kafka.produce(dead, letter(a, keyed="true"), letter(b, keyed="true"))

        assert replay(cluster, dead, target) == Replay(sent=1, outdated=1)

    def test_the_key_counts_under_which_a_record_is_sent(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        places = [write(kdsl_kafka, topic, value, value) for value in ("bad 1", "bad 2", "bad 2 again")]
        write(kdsl_kafka, topic, "new", "1")
        kdsl_kafka.produce(dead, *(letter(place, keyed="true") for place in reversed(places)))

        result = replay(
            cluster, dead, "original", change=lambda one: attrs.evolve(one, key=(one.key or b"").split()[1])
        )

        # Both records of the key 2 are sent, the later one last.
        assert result == Replay(sent=2, outdated=1)
        assert read_replayed(kdsl_kafka, topic) == ["bad 2", "bad 2 again"]

    def test_a_record_that_was_sent_counts_with_its_old_place(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, other: Callable[[str], str]
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        first, second = (write(kdsl_kafka, topic, value, value, at=at) for at, value in enumerate(("x", "y")))

        def same_key(one: Any) -> Any:
            return attrs.evolve(one, key=b"k")

        results = []
        for place in (first, second, first):
            kdsl_kafka.produce(dead, letter(place, keyed="true"))
            results.append(replay(cluster, dead, other(topic), change=same_key))

        assert results == [Replay(sent=1), Replay(sent=1, done=1), Replay(done=2, repeated=1)]

    def test_where_later_records_are_deleted_the_record_is_left_unless_forced(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, other: Callable[[str], str]
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        early = write(kdsl_kafka, topic, "early", "a", at=1)
        write(kdsl_kafka, topic, "a tombstone, perhaps", "z", at=2)
        late = write(kdsl_kafka, topic, "late", "b", at=3)
        write(kdsl_kafka, topic, "more", "z", at=4)
        kdsl_kafka.delete_records(topic, {0: 3})
        kdsl_kafka.produce(dead, letter(early, keyed="true"), letter(late, keyed="true"))

        command = ["dlq", "replay", dead, "--to", other(topic), "--bootstrap", cluster.bootstrap_servers]
        left = CliRunner().invoke(app, command)
        assert left.exit_code == 3
        assert "1  left: later records with their key may have been compacted or deleted" in left.stdout
        assert read_replayed(kdsl_kafka, other(topic)) == ["late"]
        assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
        assert read_replayed(kdsl_kafka, other(topic)) == ["late", "early"]

    def test_a_topic_that_was_created_again_is_another_topic(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        old = [write(kdsl_kafka, topic, f"first life {key}", key, at=1) for key in "ab"]
        kdsl_kafka.produce(dead, letter(old[0], keyed="true"))
        assert replay(cluster, dead, "original") == Replay(sent=1)
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)
        new = write(kdsl_kafka, topic, "second life", "a", at=1)
        kdsl_kafka.produce(dead, letter(old[1], keyed="true"), letter(new, keyed="true"))

        assert replay(cluster, dead, "original") == Replay(sent=1, recreated=2)
        assert read_replayed(kdsl_kafka, topic) == ["second life"]
        assert replay(cluster, dead, topic) == Replay(sent=1, done=1, outdated=1)
        assert read_replayed(kdsl_kafka, topic) == ["second life", "first life b"]
        assert replay(cluster, dead, "original") == Replay(done=2, recreated=1)

    def test_into_a_compacted_topic_all_records_are_by_key(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        target = kdsl_topic("target", config={"cleanup.policy": "compact"})
        places = [write(kdsl_kafka, topic, "old", key) for key in ("a", "b", None)]
        write(kdsl_kafka, topic, "new", "a")
        kdsl_kafka.produce(dead, *map(letter, places))

        assert replay(cluster, dead, target) == Replay(sent=1, outdated=1, keyless=1)
        assert replay(cluster, dead, "original") == Replay(sent=3)

    def test_a_newer_record_that_is_written_at_the_same_time_is_reported(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic, dead = kdsl_topic(), kdsl_topic("dead")
        places = [write(kdsl_kafka, topic, "old", key) for key in "ab"]
        kdsl_kafka.produce(dead, *(letter(place, keyed="true") for place in places))

        def write_before_and_after(*arguments: Any) -> None:
            write(kdsl_kafka, topic, "before", "a")
            send(*arguments)
            write(kdsl_kafka, topic, "after", "b")

        monkeypatch.setattr(replays, "send", write_before_and_after)
        result = replay(cluster, dead, "original")

        assert result == Replay(sent=2, overtaken=1)
        assert not result.is_complete
        assert [record.args for record in caplog.records if "write the newer one again" in record.message] == [
            (f"{topic}-0-0@{places[0].timestamp}@{places[0].topic_id}",)
        ]

    def test_where_the_original_topic_is_gone_later_records_cannot_be_searched(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic, target, dead = kdsl_topic(), kdsl_topic("target"), kdsl_topic("dead")
        a, b = (write(kdsl_kafka, topic, key, key) for key in "ab")
        kdsl_kafka.produce(dead, letter(a, keyed="true"), letter(b))
        kdsl_kafka.delete_topic(topic)

        assert replay(cluster, dead, "original") == Replay(recreated=2)
        assert replay(cluster, dead, target) == Replay(sent=1, unverified=1)
        assert replay(cluster, dead, target, force=True) == Replay(sent=1, done=1)

    @pytest.mark.parametrize(
        ("topics", "expected"),
        [({"target"}, "target"), ({"letters"}, "letters"), ({"target", "letters"}, "target"), (set(), None)],
    )
    def test_the_original_topic_may_be_on_either_cluster(
        self, monkeypatch: pytest.MonkeyPatch, topics: set[str], expected: str | None
    ) -> None:
        class Topics:
            def __init__(self, cluster: Cluster) -> None:
                self.name = cluster.bootstrap_servers.partition(":")[0]

            def find(self, topic: str) -> object:
                return (topic == "fixed" and self.name == "target") or self.name in topics or None

            def search(self, topic: str, records: list[Any]) -> str:
                assert len(records) == 1
                return f"{self.name} {topic}"

        monkeypatch.setattr(replays, "ReplayTopics", Topics)
        letters, target = Cluster("letters:1"), Cluster("target:1")
        run = replays._Run(letters, "dead", "fixed", target, Selection(), 3, False, False, False)
        record = replays._RecordToSend(0, Origin("orders", 0, 1), "fixed", b"k")

        searches: dict[Any, Any] = dict(run._search([record]))

        assert searches["orders", "orders"] == (None if expected is None else f"{expected} orders")
        assert searches["orders", "fixed"] == "target fixed"


def test_records_that_are_late_for_the_watermark_are_counted(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic, dead = kdsl_topic(partitions=2), kdsl_topic("dead")
    places = [write(kdsl_kafka, topic, f"{at}", at=at) for at in (10, 54, 56)]
    write(kdsl_kafka, topic, "newest", partition=1, at=60)
    kdsl_kafka.produce(dead, *(letter(place, lateness="5000") for place in places))
    kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "no watermark", at=1)))

    result = CliRunner().invoke(app, ["dlq", "replay", dead, "--to", topic, "--bootstrap", cluster.bootstrap_servers])

    assert result.exit_code == 0
    assert "4  sent and acknowledged" in result.stdout
    assert "2 of the sent records are older than the watermark" in result.stderr
    assert "logs and counts them (numLateRecordsDropped" in result.stderr
    assert len(read(kdsl_kafka, topic)) == 9


def test_a_watermark_that_only_the_query_has_is_pointed_out(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic, dead = kdsl_topic(), kdsl_topic("dead")
    kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "no watermark")))
    arguments = ["dlq", "replay", dead, "--to", "original", "--bootstrap", cluster.bootstrap_servers]

    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))

    note = "note: a query with a watermark of its own drops the rows of the sent records where they are late"
    assert note in first.stderr
    assert note not in second.stderr  # nothing was sent


@pytest.mark.reliability
def test_one_replay_of_a_topic_of_letters_runs_at_a_time(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic, dead = kdsl_topic(), kdsl_topic("dead")
    kdsl_kafka.produce(dead, letter(write(kdsl_kafka, topic, "a")))

    with (
        replays._hold_lease(cluster, dead, dry_run=False),
        pytest.raises(LeaseHeldError, match=r"another replay of the letters in .* is running"),
    ):
        replay(cluster, dead, "original")
    assert replay(cluster, dead, "original") == Replay(sent=1)
