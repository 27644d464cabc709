"""Delivery, transactions and partitioners (RULES DG, TN, SP, PAR)."""

from __future__ import annotations

import pytest

from kdsl.declare.config import Scalar
from kdsl.formats import Direction
from kdsl.resolve import Transactions, problems, resolve
from tests.resolve.tables import errors, table, warnings

EXACTLY: dict[str, Scalar] = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "orders-1"}


class TestDelivery:
    def test_at_least_once_is_the_default(self) -> None:
        resolved = resolve(table(), "write")

        assert (resolved.delivery, resolved.transactions) == ("at-least-once", None)

    def test_exactly_once_with_a_prefix(self) -> None:
        assert resolve(table(options=EXACTLY), "write").transactions == Transactions("orders-1")

    def test_staged(self) -> None:
        staged = {**EXACTLY, "sink.exactly-once.mode": "staged"}

        assert resolve(table(options=staged), "write").transactions == Transactions("orders-1", staged=True)

    def test_exactly_once_needs_a_prefix_and_only_on_a_write(self) -> None:
        definition = table(options={"sink.delivery-guarantee": "exactly-once"})
        (problem,) = errors(definition, "write")

        assert problem.code == "transactional-id-prefix"
        assert errors(definition, "read") == []

    @pytest.mark.parametrize("prefix", ["", "x" * 64_001])
    def test_a_prefix_that_cannot_be(self, prefix: str) -> None:
        codes = [p.code for p in errors(table(options={**EXACTLY, "sink.transactional-id-prefix": prefix}), "write")]

        assert codes[0] in ("option-value", "transactional-id-prefix")

    @pytest.mark.parametrize(("prefix", "better"), [(" p ", "p"), ("a\nb", "ab"), ("  ", "orders-1")])
    def test_a_prefix_that_no_tool_can_name(self, prefix: str, better: str) -> None:
        (problem,) = errors(table(options={**EXACTLY, "sink.transactional-id-prefix": prefix}), "write")

        assert f"{prefix!r}" in problem.message
        assert problem.fix == f"write 'sink.transactional-id-prefix': '{better}'"

    def test_a_timeout_that_the_client_does_not_take(self) -> None:
        (problem,) = errors(table(options={**EXACTLY, "properties.transaction.timeout.ms": "999"}), "write")

        assert problem.code == "transaction-timeout"
        assert "'transaction.timeout.ms' = '999'" in problem.message
        assert "1000 ms at least" in problem.message

    @pytest.mark.parametrize(("key", "value"), [("enable.idempotence", "false"), ("acks", "1")])
    def test_exactly_once_contradicts_a_weaker_producer(self, key: str, value: str) -> None:
        (problem,) = errors(table(options={**EXACTLY, f"properties.{key}": value}), "write")

        assert f"'{key}'" in problem.message
        assert f"'{value}'" in problem.message

    @pytest.mark.parametrize(("acks", "counts"), [("1", "before its replicas have it"), ("0", "as soon as it is sent")])
    def test_at_least_once_without_acknowledgements_of_all_may_lose_records(self, acks: str, counts: str) -> None:
        settings: dict[str, Scalar] = {"properties.acks": acks, "properties.enable.idempotence": "false"}
        (problem,) = problems(table(options=settings), "write")

        assert (problem.code, problem.severity) == ("at-least-once-acks", "warning")
        assert problem.message == (
            f"'sink.delivery-guarantee': 'at-least-once' and 'acks' = '{acks}' contradict each other: a record counts "
            f"as written {counts}, and is lost if the broker fails"
        )
        assert problem.fix == (
            "remove 'acks' (all is the default), or write 'sink.delivery-guarantee': 'none' if loss is acceptable"
        )
        assert list(problems(table(options={**settings, "sink.delivery-guarantee": "none"}), "write")) == []
        assert list(problems(table(options={**settings, "properties.acks": "-1"}), "write")) == []

    def test_the_old_name_works_with_a_warning(self) -> None:
        definition = table(options={"sink.semantic": "none"})
        results = [p.message for p in problems(definition, "write")]

        assert results == ["'sink.semantic' is the old name of 'sink.delivery-guarantee'"]
        assert resolve(definition, "write").delivery == "none"

    def test_the_two_names_may_not_contradict_each_other(self) -> None:
        (problem,) = errors(table(options={**EXACTLY, "sink.semantic": "none"}), "write")

        assert problem.message == (
            "'sink.semantic': 'none' and 'sink.delivery-guarantee': 'exactly-once' contradict each other"
        )

    def test_a_prefix_without_exactly_once_causes_a_warning(self) -> None:
        definition = table(options={"sink.transactional-id-prefix": "p"})

        assert warnings(definition, "write") == ["exactly-once-unused"]


class TestPartitioner:
    @pytest.mark.parametrize("name", ["default", "fixed", "round-robin", "shop.routing:by_customer"])
    def test_the_existing_guarantees(self, name: str) -> None:
        assert errors(table(options={"sink.partitioner": name}), "write") == []

    @pytest.mark.parametrize("name", ["", "FIXED", "org.mycompany.MyPartitioner", "a:b:c", "a b:c"])
    def test_others_are_refused(self, name: str) -> None:
        (problem,) = errors(table(options={"sink.partitioner": name}), "write")

        assert repr(name) in problem.message

    def test_round_robin_would_tear_keys_apart(self) -> None:
        options: dict[str, Scalar] = {"sink.partitioner": "round-robin", "key.format": "json", "key.fields": "id"}
        (problem,) = errors(table(options=options), "write")

        assert problem.code == "partitioner-keys"

    @pytest.mark.parametrize(("option", "side"), [("sink.parallelism", "write"), ("scan.parallelism", "read")])
    def test_a_parallelism_is_positive(self, option: str, side: Direction) -> None:
        (problem,) = errors(table(options={option: 0}), side)

        assert problem.message == f"'{option}' has the value 0"

    @pytest.mark.parametrize(("option", "other"), [("sink.parallelism", "read"), ("scan.parallelism", "write")])
    def test_an_invalid_parallelism_only_warns_in_the_other_direction(self, option: str, other: Direction) -> None:
        result = table(options={option: 0})

        assert errors(result, other) == []
        (warning,) = [p for p in problems(result, other) if p.code == "option-value"]
        assert warning.message == f"'{option}' has the value 0"

    @pytest.mark.parametrize("option", ["sink.parallelism", "scan.parallelism"])
    @pytest.mark.parametrize("side", ["read", "write"])
    def test_a_value_that_is_not_a_number_stops_both(self, option: str, side: Direction) -> None:
        assert [p.code for p in errors(table(options={option: "many"}), side)] == ["option-value"]
