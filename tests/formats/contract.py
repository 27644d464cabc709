"""The contract of formats for kdsl's own: rows of any type, damage of any kind, errors of reads, reference pages."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from docs.generate.pages import format_page
from kdsl.cluster import Registry
from kdsl.errors import RecordError, pluralize, show_bytes
from kdsl.resolve.model import Part
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.testing.contracts import formats as shipped
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from tests import strategies
from tests.arrow_rows import in_spark_layout
from tests.run.read_plans import read_plan
from tests.strategies import examples

SUPPRESSED = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.differing_executors,  # each subclass runs the test with its own format, which is the point of it
]


class FormatContract(shipped.FormatContract):
    """A subclass gives one format's abilities.

    Attributes:
        url: The schema registry; empty where the format needs none.
    """

    url: str = ""

    @abstractmethod
    def row_types(self) -> st.SearchStrategy[t.Row]:
        """The row types that the format can write and read back."""

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        """The rows of a type that read back as they were written."""
        return strategies.values(row.as_nullable(False))

    @given(st.data())
    @settings(deadline=None, max_examples=examples(60), suppress_health_check=SUPPRESSED)
    def test_any_damage_gets_one_result_with_its_location(self, data: st.DataObject) -> None:
        message = self.message(data.draw(st.integers(0, 99)))[0]
        indices = st.integers(0, len(message))
        for start, size, put in data.draw(st.lists(st.tuples(indices, st.integers(0, 9), st.binary(max_size=9)))):
            message = message[:start] + put + message[start + size :]
        self.assert_one_answer(message)

    def assert_one_answer(self, message: bytes) -> None:
        """As for any format; and an error says which record it is."""
        super().assert_one_answer(message)
        alone = self.decoder().decode(pa.array([message], pa.binary()))
        if alone.bad:
            self.assert_reported(message, self.message(0)[0], alone.bad[0].reason)

    def assert_reported(self, message: bytes, good: bytes, reason: str) -> None:
        part = Part(self.format, self.row.as_nullable(False), self.row.names)  # type: ignore[arg-type]
        decoder = RecordDecoder(read_plan(value=part), registry=Registry(self.url) if self.url else None)
        records = [{"topic": "orders", "partition": 3, "offset": 100, "value": good}]
        records.append({**records[0], "offset": 101, "value": message})
        with pytest.raises(RecordError) as error:
            decoder.decode(pa.RecordBatch.from_pylist(records, schema=pa.schema(list(RAW.items()))))

        assert str(error.value) == (
            "Orders: cannot read the record at topic orders, partition 3, offset 101: the value cannot be decoded: "
            f"{reason}; it has {pluralize(len(message), 'byte')}: {show_bytes(message, RecordError.PREFIX)}"
            + (f"; {error.value.fix}" if error.value.fix else "")  # where other options read it
        )

    @given(st.data())
    @settings(deadline=None, max_examples=examples(150), suppress_health_check=SUPPRESSED)
    def test_rows_of_any_type_read_back(self, data: st.DataObject) -> None:
        check_round_trip(self, data)

    def test_the_page_names_every_option(self) -> None:
        text = format_page(type(self.format))

        for a in attrs.fields(type(self.format)):
            assert f"`{self.format.identifier}.{a.metadata['key']}`" in text


def check_round_trip(contract: FormatContract, data: st.DataObject) -> None:
    """Rows of a type that is drawn are written and read back."""
    row = data.draw(contract.row_types())
    assert [*contract.format.check(row, "read"), *contract.format.check(row, "write")] == []
    rows = in_spark_layout(pa.array(data.draw(st.lists(contract.values(row), max_size=5)), arrow_type(row)))
    encoded = contract.encoder(row).encode(rows)
    assert encoded.bad == ()
    decoded = contract.check(contract.decoder(row).decode(encoded.messages), row)

    assert decoded.bad == ()
    assert shipped.row_strings(decoded.rows) == shipped.row_strings(rows)
