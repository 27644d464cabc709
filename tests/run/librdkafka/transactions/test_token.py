"""Tokens: what is to be done with a batch, and where a query goes on, as tokens and Spark's log say."""

from __future__ import annotations

import attrs
import pytest
from confluent_kafka import KafkaError

from kdsl.errors import ExactlyOnceError, KdslError
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.errors import exactly_once_error, unknown_outcome_error
from kdsl.run.librdkafka.transactions.spec import (
    TransactionSpec,
    add_transaction_settings,
    read_spec,
    records_digest,
    write_spec,
)
from kdsl.run.librdkafka.transactions.token import (
    MAX_BYTES,
    MAX_WRITE_ID_BYTES,
    HalfWrittenError,
    Kind,
    LogProgress,
    Token,
    Writer,
    find_start_batches,
    next_step,
    read_token,
)
from tests.run.write_plans import part, write_plan

ME = Writer("q1", table="Orders", checkpoint="file:/cp")
OTHER = Writer("q2", table="Orders", checkpoint="file:/other")
IDS = {"p-0": "p-0", "p-1": "p-1"}


RUN = "r1"


def at(batch: int, writer: Writer = ME, run: str = RUN) -> Token:
    return Token(writer, batch, run=run)


class TestToken:
    def test_it_survives_serialization(self) -> None:
        token = Token(ME, 7, "abc", 1_700_000_000_000, 12, RUN, "offsets", 3)

        assert read_token(token.text(), 12) == token

    @pytest.mark.parametrize("letter", ["x", "ж", "水", "🎉", '"', "\n", "\x01"])
    @pytest.mark.parametrize("member", ["checkpoint", "table"])
    def test_it_stays_below_kafkas_limit_however_long_the_checkpoints_path_is(self, letter: str, member: str) -> None:
        text = "file:/" + letter * 10_000 + "end"
        writer = attrs.evolve(
            ME, sink="w" * MAX_WRITE_ID_BYTES, checkpoint=text if member == "checkpoint" else "file:/cp"
        )
        writer = attrs.evolve(writer, table=text if member == "table" else "Orders")
        token = Token(writer, 7, "abc", 1_700_000_000_000, 12, RUN, "offsets")

        text = token.text()

        assert MAX_BYTES - 100 < len(text.encode()) <= MAX_BYTES < 4096
        result = read_token(text, 12)
        assert result is not None
        assert result.writer.is_same(writer)
        assert member == "table" or result.writer.checkpoint.endswith(letter + "end")

    @pytest.mark.parametrize("text", ["", "some user's own metadata", "[1]", '{"version": 1}'])
    def test_a_string_of_other_software_is_not_a_token(self, text: str) -> None:
        assert read_token(text, 1) is None

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('{"version":1,"writer":{"query":"q1"}}', r"required field missing @ \$\.batch"),
            ('{"version":1,"writer":{"query":"q1"},"batch":"x"}', r"\$\.batch"),
            ('{"version":1,"writer":[],"batch":7}', r"\$\.writer"),
            ('{"version":1,"writer":{"query":"q1","kind":"other"},"batch":7}', r"\$\.writer\.kind"),
        ],
    )
    def test_a_malformed_token_is_reported(self, text: str, reason: str) -> None:
        with pytest.raises(ExactlyOnceError, match=rf"is malformed \(.*{reason}.*delete the consumer group"):
            read_token(text, 1)

    def test_a_token_of_a_newer_kdsl_is_reported(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"has version 99, and this kdsl reads version 1"):
            read_token('{"version": 99, "writer": {}}', 1)


class TestNextStep:
    def test_a_batch_that_is_not_written_is_written_and_one_that_is_is_not(self) -> None:
        assert next_step("p-0", at(4), ME, 5, RUN) == "write"
        assert next_step("p-0", at(2), ME, 5, RUN) == "write"  # it had no rows in between
        assert next_step("p-0", at(5), ME, 5, RUN) == "skip"

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "the token of the transactional id 'p-0' is gone"),
            (at(6), "which has written batch 6 already; if a later attempt of the query is running, stop"),
            (at(5, OTHER), "taken over by the query q2 .*checkpoint file:/other.*batch 5.*q1.*at batch 5"),
            (at(4, run="r2"), "late task of an earlier run of the query q1 .*batch 5 .*'p-0'.*the new run writes the"),
            (at(5, run="r2"), "late task of an earlier run"),
            (at(4, run=""), "late task of an earlier run"),
        ],
    )
    def test_doubt_is_an_error(self, value: Token | None, reason: str) -> None:
        with pytest.raises(ExactlyOnceError, match=reason):
            next_step("p-0", value, ME, 5, RUN)


class TestSeeds:
    def test_a_first_start_is_before_the_first_batch(self) -> None:
        assert find_start_batches(ME, LogProgress(), {}, IDS, {}) == {"p-0": -1, "p-1": -1}

    def test_writers_that_have_written_the_open_batch_do_not_write_it_again(self) -> None:
        results = {"p-0": at(5), "p-1": at(4)}

        assert find_start_batches(ME, LogProgress(5, 4), results, IDS, {}) == {"p-0": 5, "p-1": 4}

    def test_writers_that_had_no_rows_for_long_are_as_far_as_the_log(self) -> None:
        assert find_start_batches(ME, LogProgress(5, 5), {"p-0": at(5), "p-1": at(1)}, IDS, {}) == {"p-0": 5, "p-1": 5}

    def test_another_number_of_writers_is_taken_where_no_batch_is_half_written(self) -> None:
        changed = {"p-0": "", "p-1": "", "p-2": ""}

        assert find_start_batches(ME, LogProgress(5, 5), {"p-0": at(5), "p-1": at(5)}, changed, {}) == dict.fromkeys(
            changed, 5
        )
        assert find_start_batches(ME, LogProgress(5, 4), {"p-0": at(4), "p-1": at(4)}, changed, {}) == dict.fromkeys(
            changed, 4
        )

    def test_another_number_of_writers_is_refused_where_a_batch_is_half_written(self) -> None:
        with pytest.raises(HalfWrittenError, match="batch 5 was cut off after 1 of 2 writers had committed"):
            find_start_batches(ME, LogProgress(5, 4), {"p-0": at(5), "p-1": at(4)}, {"p-0": ""}, {})

    def test_tokens_move_to_another_prefix_writer_by_writer(self) -> None:
        heirs = {"new-0": "p-0", "new-1": "p-1"}

        assert find_start_batches(ME, LogProgress(5, 4), {"p-0": at(4), "p-1": at(5)}, heirs, {}) == {
            "new-0": 4,
            "new-1": 5,
        }

    def test_a_missing_token_is_an_error_where_a_batch_is_open(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"'p-1' is missing.*batch 5.*offsets\.retention\.minutes.*adopt"):
            find_start_batches(ME, LogProgress(5, 4), {"p-0": at(4), "p-1": None}, IDS, {})

        assert find_start_batches(ME, LogProgress(5, 5), {"p-0": at(5), "p-1": None}, IDS, {}) == {"p-0": 5, "p-1": 5}

    def test_an_older_checkpoint_is_an_error(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"knows batches up to 5.* has written batch 9: an older checkpoint"):
            find_start_batches(ME, LogProgress(5, 5), {"p-0": at(9), "p-1": at(9)}, IDS, {})

    def test_somebody_elses_token_is_an_error(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"'p-1' belongs to the query q2 .*has written batch 9.*adopt=True"):
            find_start_batches(ME, LogProgress(), {}, IDS, {"p-0": None, "p-1": at(9, OTHER)})

    def test_all_that_is_taken_over_on_demand(self) -> None:
        results = {"p-0": at(9), "p-1": at(3, OTHER)}

        assert find_start_batches(ME, LogProgress(5, 4), results, IDS, {}, adopt=True) == {"p-0": 4, "p-1": 4}

    def test_batches_follow_one_another_and_not_a_query(self) -> None:
        first, second = (Writer(q, table="Orders", kind="batch") for q in ("a", "b"))

        assert find_start_batches(second, LogProgress(0, -1), {"p-0": at(0, first)}, {"p-0": "p-0"}, {}) == {"p-0": -1}
        assert find_start_batches(second, LogProgress(0, -1), {"p-0": at(0, second)}, {"p-0": "p-0"}, {}) == {"p-0": 0}
        with pytest.raises(ExactlyOnceError, match="belongs to the query q1"):
            find_start_batches(second, LogProgress(0, -1), {"p-0": at(0)}, {"p-0": "p-0"}, {})

    @pytest.mark.parametrize("kind", ["batch", "stream"])
    def test_two_writes_under_one_write_id_are_distinguished_by_what_they_write(self, kind: Kind) -> None:
        mine = Writer("", "nightly", "Orders", kind=kind)
        other = attrs.evolve(mine, table="Payments")
        done = {"p-0": Token(mine, 0, "records of orders")}
        start = LogProgress(0, -1)

        assert find_start_batches(mine, start, done, {"p-0": "p-0"}, {}, plan="records of orders") == {"p-0": 0}
        with pytest.raises(ExactlyOnceError, match=r"table Orders then, table Payments now.*its own write_id"):
            find_start_batches(other, start, done, {"p-0": "p-0"}, {}, plan="records of payments")
        assert find_start_batches(other, start, done, {"p-0": "p-0"}, {}, plan="records of payments", adopt=True) == {
            "p-0": 0
        }

    def test_another_batch_of_the_same_number_is_not_mistaken_for_the_written_one(self) -> None:
        """As there is after the checkpoint was set back by a batch."""
        mine = attrs.evolve(ME, sink="totals")
        done = {"p-0": Token(mine, 5, "abc", offsets="before")}
        progress = LogProgress(5, 4)
        heirs = {"p-0": "p-0"}

        assert find_start_batches(mine, progress, done, heirs, {}, plan="abc", offsets="before") == {"p-0": 5}
        assert find_start_batches(mine, progress, done, heirs, {}, plan="abc") == {"p-0": 5}
        with pytest.raises(ExactlyOnceError, match=r"'p-0' has already written a batch 5, but with other .*adopt=True"):
            find_start_batches(mine, progress, done, heirs, {}, plan="abc", offsets="after")
        assert find_start_batches(mine, progress, done, heirs, {}, plan="abc", offsets="after", adopt=True) == {
            "p-0": 4
        }

    def test_a_batch_of_another_number_of_writers_than_the_checkpoint_has_is_an_error(self) -> None:
        """As there is after a driver that was cut off has stored its number of writers over that of its successor."""
        progress, fits = LogProgress(5, 4), (2).__eq__
        by_one, by_two, before_that = (Token(ME, batch, writers=count) for batch, count in ((5, 1), (5, 2), (4, 1)))

        assert find_start_batches(ME, progress, {"p-0": by_two, "p-1": before_that}, IDS, {}, fits=fits) == {
            "p-0": 5,
            "p-1": 4,
        }
        assert find_start_batches(ME, progress, {"p-0": at(5), "p-1": at(4)}, IDS, {}, fits=fits)["p-0"] == 5
        for known, others in (({"p-0": by_one, "p-1": at(4)}, {}), ({"p-0": at(4), "p-1": at(4)}, {"p-2": by_one})):
            with pytest.raises(ExactlyOnceError, match=r"batch 5 was begun with 1 writer, .*cut off.*adopt=True"):
                find_start_batches(ME, progress, known, IDS, others, fits=fits)
            assert find_start_batches(ME, progress, known, IDS, others, fits=fits, adopt=True)

    def test_a_query_with_a_checkpoint_may_change_its_plan_there(self) -> None:
        done = {"p-0": Token(ME, 5, "before"), "p-1": at(4)}

        assert find_start_batches(ME, LogProgress(5, 4), done, IDS, {}, plan="after") == {"p-0": 5, "p-1": 4}


class TestErrors:
    def test_missing_rights_are_reported_with_the_topic(self) -> None:
        work = TransactionSpec(ME, "p", 1, "orders", "abc", 60_000, log="p.kdsl-writes")
        code = KafkaError.TOPIC_AUTHORIZATION_FAILED

        record = exactly_once_error(work, "p-0", 0, ProducerError("no", code, work.log))
        token = exactly_once_error(work, "p-0", 0, ProducerError("no", code))

        assert "grant READ and WRITE on the topic 'p.kdsl-writes' to this user" in str(record)
        assert "grant READ and WRITE on the topic 'orders' to this user" in str(token)

    @pytest.mark.parametrize(
        ("writer", "repeated"),
        [
            (ME, "when the query is restarted, the token shows that, and only rows that are missing are written"),
            (Writer("", "day-1", kind="batch"), "repeat the write with the same write_id: it is skipped if they are"),
            (Writer("id", kind="batch"), "before the write is repeated, which would duplicate them"),
        ],
    )
    def test_rows_that_may_be_visible_are_reported_with_how_to_repeat_the_write(
        self, writer: Writer, repeated: str
    ) -> None:
        work = TransactionSpec(writer, "p", 1, "orders", "abc", 60_000)

        error = unknown_outcome_error(work, 0, ProducerError("no answer"), KdslError("no coordinator"))

        assert "unknown: no coordinator; its rows may be visible; " in str(error)
        assert str(error).endswith(repeated)


class TestSettings:
    def test_other_timeouts_stay_within_the_transactions(self) -> None:
        result = add_transaction_settings(
            {"delivery.timeout.ms": "120000", "socket.timeout.ms": "70000"}, "p-0", 60_000
        )

        assert result["transaction.timeout.ms"] == "60000"
        assert result["delivery.timeout.ms"] == "60000"
        assert result["socket.timeout.ms"] == "60100"

    def test_shorter_ones_are_unchanged(self) -> None:
        result = add_transaction_settings({"delivery.timeout.ms": "12000", "socket.timeout.ms": "7000"}, "p-0", 60_000)

        assert (result["delivery.timeout.ms"], result["socket.timeout.ms"]) == ("12000", "7000")

    def test_the_digest_is_of_the_records_whoever_writes_them(self) -> None:
        plan = write_plan({"id": "BIGINT"})

        assert records_digest(plan) == records_digest(attrs.evolve(plan, table="Renamed", parallelism=3))
        assert records_digest(plan) != records_digest(write_plan({"id": "BIGINT"}, topics=("others",)))
        assert records_digest(plan) != records_digest(write_plan({"id": "INT"}))

    def test_the_digest_is_the_same_however_the_records_are_sent(self) -> None:
        columns = {"id": "BIGINT"}
        plan, moved, subject = (
            attrs.evolve(write_plan(columns), value=part("avro-confluent", columns, **options))
            for options in ({"url": "http://old"}, {"url": "http://new"}, {"url": "http://old", "subject": "other"})
        )

        assert records_digest(plan) == records_digest(moved)
        assert records_digest(plan) == records_digest(attrs.evolve(plan, partitioner="fixed", transport="jvm"))
        assert records_digest(plan) != records_digest(subject)

    def test_other_records_under_the_same_write_id_are_an_error(self) -> None:
        plan, other = write_plan({"id": "BIGINT"}), write_plan({"id": "INT"})
        mine, start = attrs.evolve(ME, sink="monday"), LogProgress(0, -1)
        done = {"p-0": Token(mine, 0, records_digest(plan))}

        assert find_start_batches(mine, start, done, {"p-0": "p-0"}, {}, plan=records_digest(plan)) == {"p-0": 0}
        with pytest.raises(ExactlyOnceError, match="other records"):
            find_start_batches(mine, start, done, {"p-0": "p-0"}, {}, plan=records_digest(other))

    def test_a_transaction_spec_travels_as_a_string(self) -> None:
        work = TransactionSpec(ME, "p", 2, "orders", "abc", 60_000, 7, "offsets", "p.kdsl-writes", {"orders": "id"})

        assert read_spec(write_spec(work)) == work
        assert work.ids == ["p-0", "p-1"]

    def test_each_claim_is_another_run(self) -> None:
        first, second = (TransactionSpec(ME, "p", 2, "orders", "abc", 60_000) for _ in range(2))

        assert first.owns(first.token(5, 1))
        assert not second.owns(first.token(5, 1))
