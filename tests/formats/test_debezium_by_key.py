"""Debezium's envelopes in Avro where only the key of rows before a change counts, as they are opened."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kdsl.formats import ROW_KINDS, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._debezium.events import TRUNCATE, key_row
from kdsl_formats.debezium_avro_confluent.envelope import SKIPPED, envelope, extract_rows

ROW = t.row(id=t.Int(nullable=False), name=t.STRING.as_nullable(False))


def read(*envelopes: dict[str, Any], keyed: tuple[str, ...] = ("id",), truncates: bool = False) -> Decoded:
    """Envelopes as they are opened; what they do not say is null."""
    kind = arrow_type(envelope(ROW, key_row(ROW, keyed)))
    whole = [{"before": None, "after": None, "op": None} | one for one in envelopes]
    skipped = (*SKIPPED, TRUNCATE) if truncates else SKIPPED
    return extract_rows(Decoded(pa.array(whole, kind)), ROW, skipped, keyed, truncates=truncates)


def rows(value: Decoded) -> list[tuple[str, Any, Any]]:
    assert value.kinds is not None
    shown = zip(value.kinds.to_pylist(), value.rows.to_pylist(), strict=True)
    return [(ROW_KINDS[kind], *row.values()) for kind, row in shown]


def test_rows_before_have_the_key_alone_and_updates_may_lack_them() -> None:
    actual = read(
        {"after": {"id": 1, "name": "a"}, "op": "r"},
        {"after": {"id": 1, "name": "b"}, "op": "u"},
        {"before": {"id": 1}, "after": {"id": 2, "name": "b"}, "op": "u"},
        {"before": {"id": 2}, "op": "d"},
    )

    assert rows(actual) == [("+I", 1, "a"), ("+U", 1, "b"), ("-U", 1, None), ("+U", 2, "b"), ("-D", 2, None)]
    assert actual.bad == ()
    assert actual.messages is not None
    assert actual.messages.to_pylist() == [0, 1, 2, 2, 3]
    assert actual.rows.type == arrow_type(ROW)


def test_a_delete_needs_the_key_where_the_value_has_it() -> None:
    (bad,) = read({"op": "d"}).bad

    assert "'before' is null in a delete ('d')" in bad.reason
    assert "REPLICA IDENTITY of its table to DEFAULT or FULL" in bad.reason


def test_a_delete_needs_no_row_where_the_message_key_has_the_key() -> None:
    actual = read({"op": "d"}, {"after": {"id": 1, "name": "a"}, "op": "c"}, keyed=("elsewhere",))

    assert [kind for kind, *_ in rows(actual)] == ["-D", "+I"]
    assert actual.bad == ()


def test_an_update_without_a_row_before_is_an_error_that_names_the_option_otherwise() -> None:
    (bad,) = read({"after": {"id": 1, "name": "a"}, "op": "u"}, keyed=()).bad

    assert "cdc_events_duplicate=True" in bad.reason


@pytest.mark.parametrize("truncates", [False, True])
def test_truncates_are_reported_where_they_are_applied(truncates: bool) -> None:
    actual = read({"op": "c", "after": {"id": 1, "name": "a"}}, {"op": "t"}, truncates=truncates)

    assert actual.truncates == ((1,) if truncates else ())
    assert [bad.index for bad in actual.bad] == ([] if truncates else [1])
