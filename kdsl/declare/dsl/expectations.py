"""Row rules in a table class."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kdsl.declare.row_rules import OnFail


@attrs.frozen
class Expectation:
    """A row rule as a table class declares it, created by `expect`.

    Attributes:
        condition: The condition, an expression of Flink SQL.
        on_fail: What happens to a row for which it is false.
        name: The rule's name; None for that of the attribute or the column.
    """

    condition: str
    on_fail: OnFail = "warn"
    name: str | None = None


def expect(condition: str, *, on_fail: OnFail = "warn", name: str | None = None) -> Expectation:
    """Declare a rule of the rows: in the body of a table class, or of a column with ``col(expect=...)``.

    ```python
    class Orders(KafkaTable, topic="orders", value=Json()):
        amount: Col[Decimal] = col(type="decimal(10, 2)", expect=expect("amount > 0", on_fail="drop"))
        ordered_at: Col[datetime]
        shipped_at: Col[datetime | None]
        in_order = expect("shipped_at >= ordered_at", on_fail="dead_letter")
    ```

    A row for which the condition is false violates the rule; one for which it is NULL does not, as in a CHECK
    constraint of SQL. Reads and writes both apply the rules of a table, and count violations by rule.

    Args:
        condition: An expression of Flink SQL over the columns of the table, of type BOOLEAN. It is checked when the
            table is resolved.
        on_fail: What happens to a row that violates the rule. ``warn``: it is kept, counted and logged. ``drop``: it is
            left out, counted and logged. ``fail``: the read or the write fails. ``dead_letter``: its record goes to the
            dead letters of the table; only a read does that.
        name: The rule's name, in metrics and messages; by default the attribute or the column.
    """
    return Expectation(condition, on_fail, name)


def as_expectations(value: object) -> tuple[object, ...]:
    """The elements of an argument ``expect=``, a rule or a sequence of them, whatever they are; none for None."""
    if value is None:
        return ()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(value)
    return (value,)
