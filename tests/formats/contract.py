"""What every format promises, as an abstract test class: a format's tests subclass it and say what the format can do.

The promises are those of `kdsl.formats`: exact Arrow types, rows in the order of their messages, errors by the index of
the record, nothing that depends on what came before; what each row says, and the metadata that is wanted.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from docs.generate.pages import format_page
from kdsl.cluster import Registry
from kdsl.errors import RecordError, show_bytes
from kdsl.formats import ALONE, ROW_KINDS, BadRecord, Decoded, Decoder, Encoder, Format, Use, format_class
from kdsl.resolve.model import Part
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from tests import strategies
from tests.arrow_rows import in_spark_layout
from tests.formats.conformance import python_rows
from tests.run.read_plans import read_plan
from tests.strategies import examples

LARGE = 10_000
AROUND = 60  # messages: more than are read one by one
MEGABYTES = 10 << 20
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing left": lambda _: b"",
    "one byte left": lambda m: m[:1],
    "four bytes left": lambda m: m[:4],
    "half left": lambda m: m[: len(m) // 2],
    "the last byte lost": lambda m: m[:-1],
    "the first byte lost": lambda m: m[1:],
    "another first byte": lambda m: b"\x7f" + m[1:],
    "another id": lambda m: m[:1] + b"\x7f\xff\xff\xff" + m[5:],
    "a byte before": lambda m: b"\0" + m,
    "a byte behind": lambda m: m + b"\0",
    "twice": lambda m: m + m,
    "backwards": lambda m: m[::-1],
    "no UTF-8 inside": lambda m: m[: len(m) // 2] + b"\xff\xc0\xaf" + m[len(m) // 2 + 3 :],
    "zeros": lambda m: bytes(len(m)),
    "ones": lambda m: b"\xff" * len(m),
    "all bits turned": lambda m: bytes(255 - b for b in m),
    "no digit": lambda m: m.replace(b"7", b"NaN"),
    "too many digits": lambda m: m.replace(b"7", b"7" * 400),
    "the longest number": lambda m: m[: len(m) // 3] + b"\xff" * 9 + b"\x01" + m[len(m) // 3 :],
    "deep arrays": lambda m: m[:5] + b"[" * 100_000,
    "deep objects": lambda m: m[:5] + b'{"a":' * 50_000,
    "no message at all": lambda _: b"Obj\x01\x04\x14avro.codec",
    "10 MB of zeros": lambda m: m + bytes(MEGABYTES),
    "10 MB of text": lambda m: m[: len(m) // 2] + b"x" * MEGABYTES + m[len(m) // 2 :],
}
SUPPRESSED = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.differing_executors,  # each subclass runs the test with its own format, which is the point of it
]


class FormatContract(ABC):
    """The promises; a subclass gives one format's abilities.

    Attributes:
        format: The format as the tests use it; it must tell NULL from every other value that it writes.
        ignoring: The same format with errors ignored; None when it cannot ignore them.
        variants: The format with other options, one instance for each option at least.
        row: A row type that `message` fills.
        rows_of_null: How many rows a null message gives.
        null_is_lost: Whether a row that is all NULL becomes a null message.
        url: The schema registry; empty where the format needs none.
    """

    format: ClassVar[Format]
    ignoring: ClassVar[Format | None] = None
    variants: ClassVar[tuple[Format, ...]] = ()
    row: ClassVar[t.Row]
    rows_of_null: ClassVar[int] = 0
    url: str = ""

    @abstractmethod
    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        """A message and the values of its row, other ones for each number."""

    @abstractmethod
    def bad_messages(self) -> list[bytes]:
        """Messages that cannot be read."""

    @abstractmethod
    def row_types(self) -> st.SearchStrategy[t.Row]:
        """The row types that the format can write and read back."""

    def change(self, number: int) -> tuple[bytes, list[tuple[str, dict[str, Any]]]]:
        """A message that is a change, of another kind for each number, and what its rows say; for changelogs only."""
        message, values = self.message(number)
        return message, [("+I", values)]

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        """The rows of a type that read back as they were written."""
        return strategies.values(row.as_nullable(False))

    # -- tools

    def decoder(self, row: t.Row | None = None, use: Use = ALONE) -> Decoder:
        return self.format.decoder(row or self.row, use)

    def encoder(self, row: t.Row | None = None) -> Encoder:
        return self.format.encoder(row or self.row)

    def messages(self, count: int) -> pa.BinaryArray:
        return pa.array([self.message(i)[0] for i in range(count)], pa.binary())

    def rows(self, count: int) -> pa.StructArray:
        return pa.array([self.message(i)[1] for i in range(count)], arrow_type(self.row))

    def owners(self, decoded: Decoded) -> list[int]:
        """The message of each row."""
        return list(range(len(decoded.rows))) if decoded.messages is None else decoded.messages.to_pylist()

    def check(self, decoded: Decoded, row: t.Row | None = None) -> Decoded:
        """What holds for every decoded batch."""
        decoded.rows.validate(full=True)
        assert decoded.rows.type == arrow_type(row or self.row)
        assert decoded.rows.null_count == 0
        if decoded.messages is not None:
            assert len(decoded.messages) == len(decoded.rows)
            assert decoded.messages.to_pylist() == sorted(decoded.messages.to_pylist())
        if decoded.kinds is not None:
            assert not self.format.insert_only
            decoded.kinds.validate(full=True)
            assert (decoded.kinds.type, decoded.kinds.null_count) == (pa.int8(), 0)
            assert len(decoded.kinds) == len(decoded.rows)
            assert set(decoded.kinds.to_pylist()) <= set(range(len(ROW_KINDS)))
        return decoded

    def assert_rows(self, decoded: Decoded, numbers: list[int]) -> None:
        """The rows are those of the messages with these numbers."""
        expected = pa.array([self.message(i)[1] for i in numbers], arrow_type(self.row))

        assert row_strings(decoded.rows) == row_strings(expected)

    # -- the promises

    def test_an_empty_batch_returns_no_rows_of_the_right_type(self) -> None:
        decoded = self.check(self.decoder().decode(pa.array([], pa.binary())))

        assert (len(decoded.rows), decoded.bad) == (0, ())

    def test_no_rows_result_in_no_messages(self) -> None:
        encoded = self.encoder().encode(self.rows(0))

        assert (encoded.messages, encoded.bad) == (pa.array([], pa.binary()), ())

    def test_a_batch_of_one_is_read(self) -> None:
        decoded = self.check(self.decoder().decode(self.messages(1)))

        assert decoded.bad == ()
        self.assert_rows(decoded, [0])

    def test_a_large_batch_is_read_as_its_pieces_are(self) -> None:
        messages = self.messages(LARGE)
        decoder = self.decoder()
        whole = self.check(decoder.decode(messages)).rows
        pieces = [decoder.decode(messages[i : i + 7_001]).rows for i in range(0, LARGE, 7_001)]

        assert row_strings(whole) == [row for piece in pieces for row in row_strings(piece)]

    def test_a_large_batch_is_written_as_its_pieces_are(self) -> None:
        rows = self.rows(LARGE)
        encoder = self.encoder()
        whole = encoder.encode(rows).messages
        pieces = [encoder.encode(rows[i : i + 7_001]).messages for i in range(0, LARGE, 7_001)]

        assert whole == pa.concat_arrays(pieces)

    def test_what_is_written_is_a_binary_array_of_one_message_per_row(self) -> None:
        encoded = self.encoder().encode(self.rows(5))
        encoded.messages.validate(full=True)

        assert (encoded.messages.type, len(encoded.messages), encoded.bad) == (pa.binary(), 5, ())
        assert encoded.messages.to_pylist() == [self.message(i)[0] for i in range(5)]

    def test_null_messages_return_the_rows_that_the_format_defines(self) -> None:
        messages = pa.array([None, self.message(1)[0], None, None, self.message(4)[0], None], pa.binary())
        decoded = self.check(self.decoder().decode(messages))
        owners = self.owners(decoded)

        assert [owners.count(i) for i in range(6)] == [self.rows_of_null if i not in (1, 4) else 1 for i in range(6)]
        results = [owners.index(i) for i in (1, 4)]
        self.assert_rows(Decoded(decoded.rows.take(pa.array(results))), [1, 4])

    def test_a_slice_of_messages_is_read_like_a_copy(self) -> None:
        messages = pa.array(
            [*self.bad_messages()[:1], None, *self.messages(6).to_pylist(), None, *self.bad_messages()[:1]], pa.binary()
        )
        decoded = self.check(self.decoder().decode(messages[3:7]))

        assert decoded.bad == ()
        self.assert_rows(decoded, [1, 2, 3, 4])

    def test_a_slice_of_rows_is_written_like_a_copy(self) -> None:
        sliced = self.encoder().encode(self.rows(9)[2:7]).messages

        assert sliced.to_pylist() == [self.message(i)[0] for i in range(2, 7)]

    def test_rows_with_sliced_columns_are_written_like_a_copy(self) -> None:
        rows = self.rows(9)
        columns = [column[2:7] for column in rows.flatten()]
        sliced = pa.StructArray.from_arrays(columns, fields=list(rows.type))

        assert self.encoder().encode(sliced).messages.to_pylist() == [self.message(i)[0] for i in range(2, 7)]

    @pytest.mark.parametrize("indices", [[0], [4], [9], [0, 4, 9], [3, 4, 5], list(range(10))])
    def test_a_bad_message_is_reported_by_its_index_and_does_not_affect_others(self, indices: list[int]) -> None:
        bad = self.bad_messages()
        messages = self.messages(10).to_pylist()
        for i, index in enumerate(indices):
            messages[index] = bad[i % len(bad)]
        decoded = self.check(self.decoder().decode(pa.array(messages, pa.binary())))
        good = [i for i in range(10) if i not in indices]

        assert [record.index for record in decoded.bad] == indices
        assert all(record.reason for record in decoded.bad)
        assert self.owners(decoded) == good
        self.assert_rows(decoded, good)

    def test_each_bad_message_fails_alone(self) -> None:
        for message in self.bad_messages():
            decoded = self.check(self.decoder().decode(pa.array([message], pa.binary())))

            assert ([record.index for record in decoded.bad], len(decoded.rows)) == ([0], 0), message

    @pytest.mark.parametrize("name", DAMAGE)
    def test_a_damaged_message_gets_one_result_with_its_location(self, name: str) -> None:
        self.assert_one_answer(DAMAGE[name](self.message(7)[0]))

    @given(st.data())
    @settings(deadline=None, max_examples=examples(60), suppress_health_check=SUPPRESSED)
    def test_any_damage_gets_one_result_with_its_location(self, data: st.DataObject) -> None:
        message = self.message(data.draw(st.integers(0, 99)))[0]
        indices = st.integers(0, len(message))
        for start, size, put in data.draw(st.lists(st.tuples(indices, st.integers(0, 9), st.binary(max_size=9)))):
            message = message[:start] + put + message[start + size :]
        self.assert_one_answer(message)

    def assert_one_answer(self, message: bytes) -> None:
        """A message is read alone as among others, which it leaves as they are; an error says which record it is."""
        alone = self.check(self.decoder().decode(pa.array([message], pa.binary())))
        around = self.messages(AROUND).to_pylist()
        among = self.check(self.decoder().decode(pa.array([*around, message, *around], pa.binary())))
        owners = self.owners(among)
        mine = [index for index, owner in enumerate(owners) if owner == AROUND]
        others = [index for index, owner in enumerate(owners) if owner != AROUND]

        assert among.bad == tuple(BadRecord(AROUND, one.reason) for one in alone.bad)
        assert row_strings(among.rows.take(pa.array(mine, pa.int64()))) == row_strings(alone.rows)
        assert [kinds(among)[index] for index in mine] == kinds(alone)
        self.assert_rows(Decoded(among.rows.take(pa.array(others))), [*range(AROUND), *range(AROUND)])
        if alone.bad:
            self.assert_reported(message, around[0], alone.bad[0].reason)

    def assert_reported(self, message: bytes, good: bytes, reason: str) -> None:
        part = Part(self.format, self.row.as_nullable(False), self.row.names)  # type: ignore[arg-type]
        decoder = RecordDecoder(read_plan(value=part), registry=Registry(self.url) if self.url else None)
        records = [{"topic": "orders", "partition": 3, "offset": 100, "value": good}]
        records.append({**records[0], "offset": 101, "value": message})
        with pytest.raises(RecordError) as error:
            decoder.decode(pa.RecordBatch.from_pylist(records, schema=pa.schema(list(RAW.items()))))

        assert 0 < len(reason) < 500
        assert str(error.value) == (
            "Orders: cannot read the record at topic orders, partition 3, offset 101: the value cannot be decoded: "
            f"{reason}; it has {len(message)} bytes: {show_bytes(message, RecordError.PREFIX)}"
            + (f"; {error.value.fix}" if error.value.fix else "")  # where other options read it
        )

    def test_ignored_errors_are_not_reported(self) -> None:
        if self.ignoring is None:
            assert "ignore-parse-errors" not in keys(type(self.format))
            return
        bad = self.bad_messages()
        messages = [self.message(0)[0], *bad, self.message(1)[0]]
        decoded = self.check(self.ignoring.decoder(self.row).decode(pa.array(messages, pa.binary())))
        owners = self.owners(decoded)

        assert decoded.bad == ()
        self.assert_rows(Decoded(decoded.rows.take(pa.array([0, len(owners) - 1]))), [0, 1])

    @given(st.data())
    @settings(deadline=None, max_examples=examples(150), suppress_health_check=SUPPRESSED)
    def test_what_was_written_reads_back(self, data: st.DataObject) -> None:
        check_round_trip(self, data)

    def test_not_null_columns_stay_so_in_the_arrow_type(self) -> None:
        row = t.Row(tuple(attrs.evolve(f, type=f.type.as_nullable(False)) for f in self.row.fields))
        decoded = self.check(self.decoder(row).decode(self.messages(3)), row)

        assert [field.nullable for field in decoded.rows.type] == [False] * len(row.fields)

    def test_the_same_messages_return_the_same_rows_again_and_from_another_decoder(self) -> None:
        messages = pa.array([*self.bad_messages(), *self.messages(20).to_pylist(), None], pa.binary())
        decoder = self.decoder()
        results = [decoder.decode(messages), decoder.decode(messages), self.decoder().decode(messages)]

        assert len({repr((row_strings(r.rows), self.owners(r), r.bad)) for r in results}) == 1

    def test_two_decoders_run_in_two_threads(self) -> None:
        messages = pa.array([*self.messages(500).to_pylist(), *self.bad_messages()], pa.binary())
        expected = row_strings(self.decoder().decode(messages).rows)

        def read(decoder: Decoder) -> list[list[str]]:
            return [row_strings(decoder.decode(messages).rows) for _ in range(5)]

        with ThreadPoolExecutor(2) as pool:
            for item in pool.map(read, [self.decoder(), self.decoder()]):
                assert item == [expected] * 5

    def test_metadata_is_returned_for_the_requested_keys(self) -> None:
        messages = pa.array(
            [*self.messages(100).to_pylist(), *self.bad_messages(), None, *(self.change(i)[0] for i in range(100))],
            pa.binary(),
        )
        keys_known = tuple(self.format.metadata)
        for wanted in {(), keys_known[:1], keys_known[::-1], keys_known}:
            decoded = self.check(self.decoder(use=Use(metadata=wanted)).decode(messages))

            assert tuple(decoded.metadata) == wanted
            for key, array in decoded.metadata.items():
                array.validate(full=True)
                assert array.type == arrow_type(self.format.metadata[key])
                assert len(array) == len(decoded.rows)

    def test_changes_are_read_in_order_whatever_the_size_of_the_batch(self) -> None:
        messages, rows = zip(*(self.change(i) for i in range(1_000)), strict=True)
        for size, count in ((1, 50), (7, 350), (1_000, 1_000)):
            sample = [one for changes in rows[:count] for one in changes]
            expected = row_strings(pa.array([values for _, values in sample], arrow_type(self.row)))
            pieces = [
                self.check(self.decoder().decode(pa.array(messages[i : i + size], pa.binary())))
                for i in range(0, count, size)
            ]

            assert [kind for piece in pieces for kind in kinds(piece)] == [kind for kind, _ in sample]
            assert [row for piece in pieces for row in row_strings(piece.rows)] == expected

    def test_row_kinds_are_written(self) -> None:
        """Changelogs keep whether a row is there or gone; whatever else they say may become one of these."""
        if self.format.insert_only:
            return
        rows = self.rows(400)
        codes = pa.array([i % len(ROW_KINDS) for i in range(400)], pa.int8())
        encoded = self.encoder().encode(rows, codes)
        decoded = self.check(self.decoder().decode(encoded.messages))
        there = [ROW_KINDS[code] in ("+I", "+U") for code in codes.to_pylist()]

        assert encoded.bad == ()
        assert [kind in ("+I", "+U") for kind in kinds(decoded)] == there
        assert row_strings(decoded.rows) == row_strings(rows)
        assert self.encoder().encode(rows[3:9], codes[3:9]).messages == encoded.messages[3:9]

    def test_the_format_is_found_by_its_name(self) -> None:
        assert format_class(self.format.identifier) is type(self.format)

    def test_the_variants_have_no_problems_and_set_every_option(self) -> None:
        sample = [problem for variant in self.all_variants() for problem in variant.problems()]
        changed = {key for variant in self.all_variants() for key in variant.to_strings()}

        assert sample == []
        assert changed == keys(type(self.format))

    def test_options_survive_flinks_keys_and_strings(self) -> None:
        for variant in self.all_variants():
            assert type(variant).from_strings(variant.to_strings()) == variant

    def test_a_format_survives_pickling(self) -> None:
        for variant in self.all_variants():
            copied = pickle.loads(pickle.dumps(variant))

            assert (copied, list(copied.problems())) == (variant, list(variant.problems()))

    def test_an_unknown_option_is_reported_with_a_suggestion(self) -> None:
        for key in sorted(keys(type(self.format))):
            wrong = f"{key}s"
            problems = list(type(self.format).from_strings({**self.format.to_strings(), wrong: "x"}).problems())

            assert [p.code for p in problems] == ["option-unknown"]
            assert f"the format '{self.format.identifier}' has no option '{wrong}'" in problems[0].message
            assert "did you mean" in problems[0].message
            assert repr(key) in problems[0].fix

    def test_the_page_names_every_option(self) -> None:
        text = format_page(type(self.format))

        for a in attrs.fields(type(self.format)):
            assert f"`{self.format.identifier}.{a.metadata['key']}` | `{a.name}` |" in text

    def all_variants(self) -> list[Format]:
        return [self.format, *([] if self.ignoring is None else [self.ignoring]), *self.variants]


def check_round_trip(contract: FormatContract, data: st.DataObject) -> None:
    """Rows of a type that is drawn are written and read back."""
    row = data.draw(contract.row_types())
    assert [*contract.format.check(row, "read"), *contract.format.check(row, "write")] == []
    rows = in_spark_layout(pa.array(data.draw(st.lists(contract.values(row), max_size=5)), arrow_type(row)))
    encoded = contract.encoder(row).encode(rows)
    assert encoded.bad == ()
    decoded = contract.check(contract.decoder(row).decode(encoded.messages), row)

    assert decoded.bad == ()
    assert row_strings(decoded.rows) == row_strings(rows)


def keys(kind: type[Format]) -> set[str]:
    """Flink's keys of a format's options."""
    return {a.metadata["key"] for a in attrs.fields(kind)}


def kinds(decoded: Decoded) -> list[str]:
    """What each row says."""
    return (
        [ROW_KINDS[code] for code in decoded.kinds.to_pylist()]
        if decoded.kinds is not None
        else ["+I"] * len(decoded.rows)
    )


def row_strings(rows: pa.StructArray) -> list[str]:
    """The rows as strings, so that NaN equals NaN and 0.0 differs from -0.0."""
    return [repr(row) for row in python_rows(rows)]
