"""Tokens: what is to be done with a batch, and where a query goes on, as tokens and Spark's log say."""

from __future__ import annotations

import attrs
import pytest

from kdsl.run.librdkafka.transactions.token import (
    ExactlyOnceError,
    HalfWrittenError,
    Kind,
    LogProgress,
    Token,
    Writer,
    next_step,
    read_token,
    seeds,
)
from kdsl.run.librdkafka.transactions.work import (
    TransactionalWrite,
    read_transactional_write,
    records_digest,
    transactional,
    transactional_write_text,
)
from tests.run.write_plans import write_plan

ME = Writer("q1", table="Orders", place="file:/cp")
OTHER = Writer("q2", table="Orders", place="file:/other")
IDS = {"p-0": "p-0", "p-1": "p-1"}


def at(batch: int, writer: Writer = ME) -> Token:
    return Token(writer, batch)


class TestToken:
    def test_it_comes_back_from_its_text(self) -> None:
        token = Token(ME, 7, "abc", 1_700_000_000_000, 12)

        assert read_token(token.text(), 12) == token

    def test_it_stays_below_kafkas_limit_however_long_the_checkpoints_path_is(self) -> None:
        token = Token(attrs.evolve(ME, place="file:/" + "x" * 10_000), 7)

        assert len(token.text()) < 4096

    @pytest.mark.parametrize("text", ["", "some user's own metadata", "[1]", '{"version": 1}'])
    def test_a_text_of_somebody_else_is_none(self, text: str) -> None:
        assert read_token(text, 1) is None

    def test_one_of_a_newer_kdsl_is_told(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"has version 99, this kdsl reads version 1"):
            read_token('{"version": 99, "writer": {}}', 1)


class TestNextStep:
    def test_a_batch_that_is_not_written_is_written_and_one_that_is_is_not(self) -> None:
        assert next_step("p-0", at(4), ME, 5) == "write"
        assert next_step("p-0", at(2), ME, 5) == "write"  # it had no rows in between
        assert next_step("p-0", at(5), ME, 5) == "skip"

    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            (None, "the token of the transactional id 'p-0' is gone"),
            (at(6), "which has written batch 6 already: a later attempt has overtaken this one"),
            (at(5, OTHER), "taken over by the query q2 .*checkpoint file:/other.*batch 5.*q1.*at batch 5"),
        ],
    )
    def test_doubt_is_an_error(self, found: Token | None, reason: str) -> None:
        with pytest.raises(ExactlyOnceError, match=reason):
            next_step("p-0", found, ME, 5)


class TestSeeds:
    def test_a_first_start_is_before_the_first_batch(self) -> None:
        assert seeds(ME, LogProgress(), {}, IDS, {}) == {"p-0": -1, "p-1": -1}

    def test_writers_that_have_written_the_open_batch_do_not_write_it_again(self) -> None:
        found = {"p-0": at(5), "p-1": at(4)}

        assert seeds(ME, LogProgress(5, 4), found, IDS, {}) == {"p-0": 5, "p-1": 4}

    def test_writers_that_had_no_rows_for_long_are_as_far_as_the_log(self) -> None:
        assert seeds(ME, LogProgress(5, 5), {"p-0": at(5), "p-1": at(1)}, IDS, {}) == {"p-0": 5, "p-1": 5}

    def test_another_number_of_writers_is_taken_where_no_batch_is_half_written(self) -> None:
        changed = {"p-0": "", "p-1": "", "p-2": ""}

        assert seeds(ME, LogProgress(5, 5), {"p-0": at(5), "p-1": at(5)}, changed, {}) == dict.fromkeys(changed, 5)
        assert seeds(ME, LogProgress(5, 4), {"p-0": at(4), "p-1": at(4)}, changed, {}) == dict.fromkeys(changed, 4)

    def test_another_number_of_writers_is_refused_where_a_batch_is_half_written(self) -> None:
        with pytest.raises(HalfWrittenError, match="batch 5 was cut off after 1 of 2 writers had committed"):
            seeds(ME, LogProgress(5, 4), {"p-0": at(5), "p-1": at(4)}, {"p-0": ""}, {})

    def test_tokens_move_to_another_prefix_writer_by_writer(self) -> None:
        heirs = {"new-0": "p-0", "new-1": "p-1"}

        assert seeds(ME, LogProgress(5, 4), {"p-0": at(4), "p-1": at(5)}, heirs, {}) == {"new-0": 4, "new-1": 5}

    def test_a_missing_token_is_an_error_where_a_batch_is_open(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"'p-1' is missing.*batch 5.*offsets\.retention\.minutes.*adopt"):
            seeds(ME, LogProgress(5, 4), {"p-0": at(4), "p-1": None}, IDS, {})

        assert seeds(ME, LogProgress(5, 5), {"p-0": at(5), "p-1": None}, IDS, {}) == {"p-0": 5, "p-1": 5}

    def test_an_older_checkpoint_is_an_error(self) -> None:
        with pytest.raises(
            ExactlyOnceError, match=r"knows of batches up to 5.* has written batch 9: an older checkpoint"
        ):
            seeds(ME, LogProgress(5, 5), {"p-0": at(9), "p-1": at(9)}, IDS, {})

    def test_somebody_elses_token_is_an_error(self) -> None:
        with pytest.raises(ExactlyOnceError, match=r"'p-1' belongs to the query q2 .*has written batch 9.*adopt=True"):
            seeds(ME, LogProgress(), {}, IDS, {"p-0": None, "p-1": at(9, OTHER)})

    def test_all_that_is_taken_over_on_demand(self) -> None:
        found = {"p-0": at(9), "p-1": at(3, OTHER)}

        assert seeds(ME, LogProgress(5, 4), found, IDS, {}, adopt=True) == {"p-0": 4, "p-1": 4}

    def test_batches_follow_one_another_and_not_a_query(self) -> None:
        first, second = (Writer(q, table="Orders", kind="batch") for q in ("a", "b"))

        assert seeds(second, LogProgress(0, -1), {"p-0": at(0, first)}, {"p-0": "p-0"}, {}) == {"p-0": -1}
        assert seeds(second, LogProgress(0, -1), {"p-0": at(0, second)}, {"p-0": "p-0"}, {}) == {"p-0": 0}
        with pytest.raises(ExactlyOnceError, match="belongs to the query q1"):
            seeds(second, LogProgress(0, -1), {"p-0": at(0)}, {"p-0": "p-0"}, {})

    @pytest.mark.parametrize("kind", ["batch", "stream"])
    def test_two_writes_under_one_write_id_are_told_apart_by_what_they_write(self, kind: Kind) -> None:
        mine = Writer("", "nightly", "Orders", kind=kind)
        other = attrs.evolve(mine, table="Payments")
        done = {"p-0": Token(mine, 0, "records of orders")}
        start = LogProgress(0, -1)

        assert seeds(mine, start, done, {"p-0": "p-0"}, {}, plan="records of orders") == {"p-0": 0}
        with pytest.raises(ExactlyOnceError, match=r"table Orders then, table Payments now.*its own write_id"):
            seeds(other, start, done, {"p-0": "p-0"}, {}, plan="records of payments")
        assert seeds(other, start, done, {"p-0": "p-0"}, {}, plan="records of payments", adopt=True) == {"p-0": 0}

    def test_a_query_with_a_checkpoint_may_change_its_plan_there(self) -> None:
        done = {"p-0": Token(ME, 5, "before"), "p-1": at(4)}

        assert seeds(ME, LogProgress(5, 4), done, IDS, {}, plan="after") == {"p-0": 5, "p-1": 4}


class TestSettings:
    def test_other_timeouts_stay_within_the_transactions(self) -> None:
        found = transactional({"delivery.timeout.ms": "120000", "socket.timeout.ms": "70000"}, "p-0", 60_000)

        assert found["transaction.timeout.ms"] == "60000"
        assert found["delivery.timeout.ms"] == "60000"
        assert found["socket.timeout.ms"] == "60100"

    def test_shorter_ones_stay_as_they_are(self) -> None:
        found = transactional({"delivery.timeout.ms": "12000", "socket.timeout.ms": "7000"}, "p-0", 60_000)

        assert (found["delivery.timeout.ms"], found["socket.timeout.ms"]) == ("12000", "7000")

    def test_the_digest_is_of_the_records_whoever_writes_them(self) -> None:
        plan = write_plan({"id": "BIGINT"})

        assert records_digest(plan) == records_digest(attrs.evolve(plan, table="Renamed", parallelism=3))
        assert records_digest(plan) != records_digest(write_plan({"id": "BIGINT"}, topics=("others",)))
        assert records_digest(plan) != records_digest(write_plan({"id": "INT"}))

    def test_work_travels_as_text(self) -> None:
        work = TransactionalWrite(ME, "p", 2, "orders", "abc", 60_000, 7)

        assert read_transactional_write(transactional_write_text(work)) == work
        assert work.ids == ["p-0", "p-1"]
