"""The two ways to read and to write Protobuf give the same: by whole columns, and one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.formats import Decoded
from kdsl.types.arrow import arrow_type
from kdsl_formats.protobuf.decoder import ProtobufDecoder
from kdsl_formats.protobuf.encoder import ProtobufEncoder
from kdsl_formats.protobuf.layout import find_problems, layout_of
from kdsl_formats.protobuf.reference_decoder import ReadingRules
from kdsl_formats.protobuf.reference_encoder import WritingRules
from kdsl_formats.protobuf.wire import MessageBuffer
from tests import strategies
from tests.formats.conformance import python_rows
from tests.formats.protobuf_messages import (
    HEADS,
    everything,
    messages,
    rows_of,
    similar_messages,
    unusual_bytes,
    value_strategy,
)
from tests.strategies import examples

EVERY = 1 << 30
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


def comparable(decoded: Decoded) -> Any:
    rows = [repr(row) for row in python_rows(decoded.rows)]
    owners = list(range(len(rows))) if decoded.messages is None else decoded.messages.to_pylist()
    return rows, owners, decoded.bad


@pytest.mark.parametrize("syntax", HEADS)
@given(st.data())
@settings(deadline=None, max_examples=examples(80), suppress_health_check=QUIET)
def test_both_decoders_return_the_same(syntax: str, data: st.DataObject) -> None:
    schema = everything(syntax)
    row = data.draw(rows_of(schema.message))
    assert list(find_problems(schema.message, row)) == []
    results = [message.SerializeToString() for message in data.draw(similar_messages(schema.message, row.names))]
    for odd in data.draw(st.lists(unusual_bytes(messages(schema.message)) | st.none(), max_size=2)):
        results.insert(data.draw(st.integers(0, len(results))), odd)
    rules = ReadingRules(read_default_values=data.draw(st.booleans()), null_fails=data.draw(st.booleans()))
    layout = layout_of(schema, row)
    read = [
        ProtobufDecoder(layout, row, rules, min_batch=min_batch).decode(pa.array(results, pa.binary()))
        for min_batch in (1, EVERY)
    ]

    for decoded in read:
        decoded.rows.validate(full=True)
        assert decoded.rows.type == arrow_type(row)
    assert comparable(read[0]) == comparable(read[1])


@pytest.mark.parametrize("syntax", HEADS)
@given(st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=QUIET)
def test_plain_messages_are_read_by_columns(syntax: str, data: st.DataObject) -> None:
    schema = everything(syntax)
    row = data.draw(rows_of(schema.message, by_number=False))
    results = [message.SerializeToString() for message in data.draw(similar_messages(schema.message, row.names))]
    decoder = ProtobufDecoder(layout_of(schema, row), row, ReadingRules(), min_batch=1)
    source, start, end = MessageBuffer.of(pa.array(results, pa.binary()))

    assert not decoder.reader.read(source, start, end)[1].any()


@pytest.mark.parametrize("syntax", HEADS)
@given(st.data())
@settings(deadline=None, max_examples=examples(80), suppress_health_check=QUIET)
def test_both_encoders_return_the_same(syntax: str, data: st.DataObject) -> None:
    schema = everything(syntax)
    row = data.draw(rows_of(schema.message))
    assert list(find_problems(schema.message, row, writing=True)) == []
    values = data.draw(st.lists(strategies.values(row.as_nullable(False), value_strategy), min_size=1, max_size=6))
    rows = pa.array(values, arrow_type(row))
    first = data.draw(st.integers(0, len(rows) - 1))
    rules = WritingRules(null_text=data.draw(st.sampled_from(["", "none"])), unknown_fails=data.draw(st.booleans()))
    layout = layout_of(schema, row)
    written = [ProtobufEncoder(layout, rules, min_batch=min_batch).encode(rows[first:]) for min_batch in (1, EVERY)]

    for encoded in written:
        encoded.messages.validate(full=True)
    assert written[0].messages.to_pylist() == written[1].messages.to_pylist()
    assert written[0].bad == written[1].bad
