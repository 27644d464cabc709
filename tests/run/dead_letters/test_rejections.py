"""What a decoder rejects: each bad record, with a reason that quotes no value, and its neighbours are rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kdsl import DebeziumJson, Json
from kdsl.errors import RecordError
from kdsl.formats import format_names
from kdsl.plan.model import MetadataColumn, Part, ReadPlan, Topics
from kdsl.run.dead_letters.reasons import MAX_BYTES, ColumnFinder, cut, write_reason
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason
from kdsl.run.records.rejections import Rejection
from kdsl.shown_values import show_value
from kdsl.types import model as t
from tests.registry.front import Front
from tests.run.dead_letters.poison import POISON, ROW, SECRET, answer_schemas


class Letters:
    """Collects what a decoder rejects."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.rejections: list[Rejection] = []

    def __call__(self, records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
        assert [r.index for r in rejections] == sorted({r.index for r in rejections})
        self.values += [records.column("value")[r.index].as_py() for r in rejections]
        self.rejections += rejections


def plan_of(
    chosen: Any, *, row: t.Row = ROW, metadata: tuple[MetadataColumn, ...] = (), changelog: bool = False
) -> ReadPlan:
    names = tuple(f.name for f in row.fields)
    kind = (t.Field("_row_kind", t.STRING.as_nullable(False)),) if changelog else ()
    shown = tuple(t.Field(m.column, m.type) for m in metadata)
    columns = t.Row((*kind, *row.fields, *shown), nullable=False)
    value = Part(chosen, row, names)
    return ReadPlan(
        "Orders", Topics(("orders",)), columns, columns, value=value, metadata=metadata, changelog=changelog
    )


def raw(values: Sequence[bytes | None], first: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.repeat("orders", len(values)),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), len(values)),
            "offset": pa.array(range(first, first + len(values)), pa.int64()),
            "value": pa.array(values, pa.binary()),
        }
    )


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with Front(answer_schemas) as front:
        yield front.url


def test_every_format_has_its_poison() -> None:
    assert {one.format.identifier for one in POISON.values()} == set(format_names())


@pytest.mark.parametrize("name", POISON)
def test_each_of_twenty_kinds_of_poison_is_rejected_and_its_neighbours_are_rows(name: str, registry: str) -> None:
    chosen, poison, good = POISON[name].format_with(registry), POISON[name].messages, POISON[name].good
    assert len(poison) == 20
    messages = [message for i, one in enumerate(poison.values()) for message in (good(i), one)]
    plan = plan_of(chosen, row=POISON[name].row, changelog=not chosen.insert_only)
    decoder, letters = RecordDecoder(plan), Letters()
    decoder._errors.dead_letters = letters

    rows = decoder.decode(raw([*messages, good(20)]))

    assert letters.values == list(poison.values())
    assert rows.num_rows == 21
    assert decoder.dropped == {Reason.DEAD_LETTER: 20}
    for rejection in letters.rejections:
        reason = write_reason(rejection)
        assert reason
        assert len(reason.encode()) <= MAX_BYTES
        assert SECRET not in reason
        assert rejection.side == "value"
        assert rejection.stage == "VALUE_CONVERTER"


def test_without_dead_letters_the_first_bad_record_is_an_error_that_counts_the_others() -> None:
    decoder = RecordDecoder(plan_of(Json()))

    with pytest.raises(RecordError) as raised:
        decoder.decode(raw([b'{"id":1,"day":"2024-01-01","name":"a"}', b"x", b"y"]))

    assert (raised.value.offset, raised.value.more) == (1, 1)


def test_metadata_that_does_not_fit_and_null_are_rejected_as_well() -> None:
    shown = MetadataColumn("small", "offset", t.TinyInt())
    decoder, letters = RecordDecoder(plan_of(Json(), metadata=(shown,))), Letters()
    decoder._errors.dead_letters = letters
    good = b'{"id":1,"day":"2024-01-01","name":"a"}'

    rows = decoder.decode(raw([good, b"bad", good, good, b'{"id":1,"day":"2024-01-01"}', good], first=124))

    actual = [(r.index, r.side, r.column, r.stage) for r in letters.rejections]
    assert actual == [
        (1, "value", None, "VALUE_CONVERTER"),
        (4, "record", "small", "HEADER_CONVERTER"),
        (5, "record", "small", "HEADER_CONVERTER"),
    ]
    assert rows.column("small").to_pylist() == [124, 126, 127]


def test_a_change_with_several_rows_is_one_letter() -> None:
    decoder, letters = RecordDecoder(plan_of(DebeziumJson(), changelog=True)), Letters()
    decoder._errors.dead_letters = letters
    row = b'{"id":1,"day":"2024-01-01","name":"a"}'
    update = b'{"before":%s,"after":%s,"op":"u"}' % (row, row.replace(b'"a"', b"null"))

    rows = decoder.decode(raw([update, b'{"before":%s,"after":%s,"op":"u"}' % (row, row)]))

    assert rows.column("_row_kind").to_pylist() == ["-U", "+U"]
    assert [(r.index, r.column) for r in letters.rejections] == [(0, "name")]


def test_a_reason_is_cut_between_characters() -> None:
    text = cut("ä" * 2000, 1024)

    assert len(text.encode()) <= 1024
    assert text == "ä" * 510 + "…"


def test_a_reason_names_its_column_if_it_is_known() -> None:
    finder = ColumnFinder(plan_of(Json()))

    assert finder.find_column(Rejection(0, "field 'day': bad")) == "day"
    assert finder.find_column(Rejection(0, "field 'day[0].id': bad")) == "day"
    assert finder.find_column(Rejection(0, "field 'other': bad")) is None
    assert finder.find_column(Rejection(0, "the message is a number")) is None
    assert finder.find_column(Rejection(0, f"the string {show_value('field id')} is bad")) is None
