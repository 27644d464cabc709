"""The contract of formats: what kdsl relies on, as tests that the tests of a format subclass.

A subclass names a format, a row type, and messages of it; pytest runs the tests of `FormatContract` with them::

    from kdsl.testing.contracts.formats import FormatContract


    class TestLines(FormatContract):
        format = Lines()
        row = t.row(id=t.BigInt(), name=t.STRING)

        def message(self, number):
            return f"{number}|name {number}".encode(), {"id": number, "name": f"name {number}"}

        def bad_messages(self):
            return [b"", b"x|name"]

They need neither Spark nor Kafka, and take a few seconds.
"""

from __future__ import annotations

import pickle
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, get_args

import attrs
import pyarrow as pa
import pytest

from kdsl.errors import Problem
from kdsl.formats import (
    ALONE,
    ROW_KINDS,
    BadRecord,
    Decoded,
    Decoder,
    Encoder,
    Format,
    OnTruncate,
    OnUnavailable,
    Use,
    format_class,
)
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl.types.widening import join_schemas

LARGE = 10_000
"""The number of messages of a large batch."""
AROUND = 60
"""The number of good messages before and after a damaged one: more than formats may read one by one."""
_PIECE = 7_001
_MEGABYTES = 10 << 20
DAMAGE: Mapping[str, Callable[[bytes], bytes]] = {
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
    "10 MB of zeros": lambda m: m + bytes(_MEGABYTES),
    "10 MB of text": lambda m: m[: len(m) // 2] + b"x" * _MEGABYTES + m[len(m) // 2 :],
}
"""Changes to a message after which it may or may not be readable, by name."""


class FormatContract(ABC):
    """The tests of a format; a subclass says what the format can do.

    Attributes:
        format: The format as the tests use it; it must tell NULL from every other value that it writes.
        lenient: The same format that ignores errors (`Format.is_lenient`); None if it cannot.
        variants: The format with other options. Together with `format` and `lenient` they set every option of it.
        row: A row type that `message` fills.
        rows_of_null: How many rows a null message gives.
    """

    format: ClassVar[Format]
    lenient: ClassVar[Format | None] = None
    variants: ClassVar[tuple[Format, ...]] = ()
    row: ClassVar[t.Row]
    rows_of_null: ClassVar[int] = 0

    @abstractmethod
    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        """Return a message, as the format writes it, and the values of its row.

        Args:
            number: From 0; messages of different numbers differ. Values are those that Arrow accepts for the column's
                type; dates, times and timestamps may be numbers.
        """

    @abstractmethod
    def bad_messages(self) -> list[bytes]:
        """Return messages that cannot be read, at least one."""

    def change(self, number: int) -> tuple[bytes, list[tuple[str, dict[str, Any]]]]:
        """Return a message that is a change, and the kind and the values of each of its rows.

        Formats of change data override it; by default it is the insert of `message`.
        """
        message, values = self.message(number)
        return message, [("+I", values)]

    def rows_to_write(self) -> Iterable[tuple[t.Row, Sequence[Mapping[str, Any]]]]:
        """Yield rows that read back as they were written, with their type; by default those of `message`.

        A subclass adds rows of every type that the format supports, with the smallest and greatest values and NULL.
        """
        yield self.row, [self.message(i)[1] for i in range(50)]

    def decoder(self, row: t.Row | None = None, use: Use = ALONE) -> Decoder:
        """Create a decoder of the format; for `row` by default."""
        return self.format.decoder(row or self.row, use)

    def encoder(self, row: t.Row | None = None) -> Encoder:
        """Create an encoder of the format; for `row` by default."""
        return self.format.encoder(row or self.row)

    def messages(self, count: int) -> pa.BinaryArray:
        """Return the messages of the numbers up to a count."""
        return pa.array([self.message(i)[0] for i in range(count)], pa.binary())

    def rows(self, count: int) -> pa.StructArray:
        """Return the rows of the numbers up to a count."""
        return pa.array([self.message(i)[1] for i in range(count)], arrow_type(self.row))

    def owners(self, decoded: Decoded) -> list[int]:
        """Return the index of each row's message."""
        return list(range(len(decoded.rows))) if decoded.messages is None else decoded.messages.to_pylist()

    def check(self, decoded: Decoded, row: t.Row | None = None) -> Decoded:
        """Return a decoded batch, after a check of what holds for every batch.

        Args:
            decoded: The result of a decoder.
            row: The row type of the decoder; `row` by default.
        """
        decoded.rows.validate(full=True)
        assert decoded.rows.type == arrow_type(row or self.row), "the rows have another type than the columns"
        assert decoded.rows.null_count == 0, "no row is null, only its values are"
        if decoded.messages is not None:
            assert len(decoded.messages) == len(decoded.rows)
            assert decoded.messages.to_pylist() == sorted(decoded.messages.to_pylist()), "rows are in another order"
        if decoded.kinds is not None:
            assert not self.format.insert_only, "the format declares insert_only, but returns row kinds"
            decoded.kinds.validate(full=True)
            assert (decoded.kinds.type, decoded.kinds.null_count) == (pa.int8(), 0)
            assert len(decoded.kinds) == len(decoded.rows)
            assert set(decoded.kinds.to_pylist()) <= set(range(len(ROW_KINDS)))
        return decoded

    def assert_rows(self, decoded: Decoded, numbers: list[int]) -> None:
        """Fail unless the rows are those of the messages with these numbers."""
        expected = pa.array([self.message(i)[1] for i in numbers], arrow_type(self.row))

        assert row_strings(decoded.rows) == row_strings(expected)

    def all_variants(self) -> list[Format]:
        """Return the format with all options of the subclass."""
        return [self.format, *([] if self.lenient is None else [self.lenient]), *self.variants]

    def test_an_empty_batch_returns_no_rows_of_the_right_type(self) -> None:
        """A batch without messages has no rows."""
        decoded = self.check(self.decoder().decode(pa.array([], pa.binary())))

        assert (len(decoded.rows), decoded.bad) == (0, ())

    def test_no_rows_result_in_no_messages(self) -> None:
        """A batch without rows has no messages."""
        encoded = self.encoder().encode(self.rows(0))

        assert (encoded.messages, encoded.bad) == (pa.array([], pa.binary()), ())

    def test_a_batch_of_one_is_read(self) -> None:
        """A single message gives its row."""
        decoded = self.check(self.decoder().decode(self.messages(1)))

        assert decoded.bad == ()
        self.assert_rows(decoded, [0])

    def test_a_large_batch_is_read_as_its_pieces_are(self) -> None:
        """The rows do not depend on the size of batches."""
        messages = self.messages(LARGE)
        decoder = self.decoder()
        whole = self.check(decoder.decode(messages)).rows
        pieces = [decoder.decode(messages[i : i + _PIECE]).rows for i in range(0, LARGE, _PIECE)]

        assert row_strings(whole) == [row for piece in pieces for row in row_strings(piece)]

    def test_a_large_batch_is_written_as_its_pieces_are(self) -> None:
        """The messages do not depend on the size of batches."""
        rows = self.rows(LARGE)
        encoder = self.encoder()
        whole = encoder.encode(rows).messages
        pieces = [encoder.encode(rows[i : i + _PIECE]).messages for i in range(0, LARGE, _PIECE)]

        assert whole == pa.concat_arrays(pieces)

    def test_what_is_written_is_a_binary_array_of_one_message_per_row(self) -> None:
        """Rows are written to the messages of the subclass."""
        encoded = self.encoder().encode(self.rows(5))
        encoded.messages.validate(full=True)

        assert (encoded.messages.type, len(encoded.messages), encoded.bad) == (pa.binary(), 5, ())
        assert encoded.messages.to_pylist() == [self.message(i)[0] for i in range(5)]

    def test_null_messages_return_the_rows_that_the_format_defines(self) -> None:
        """A null message gives `rows_of_null` rows, and the others their own."""
        messages = pa.array([None, self.message(1)[0], None, None, self.message(4)[0], None], pa.binary())
        decoded = self.check(self.decoder().decode(messages))
        owners = self.owners(decoded)

        assert [owners.count(i) for i in range(6)] == [self.rows_of_null if i not in (1, 4) else 1 for i in range(6)]
        results = [owners.index(i) for i in (1, 4)]
        self.assert_rows(Decoded(decoded.rows.take(pa.array(results))), [1, 4])

    def test_a_slice_of_messages_is_read_like_a_copy(self) -> None:
        """Arrays may be slices, with an offset into their buffers."""
        messages = pa.array(
            [*self.bad_messages()[:1], None, *self.messages(6).to_pylist(), None, *self.bad_messages()[:1]], pa.binary()
        )
        decoded = self.check(self.decoder().decode(messages[3:7]))

        assert decoded.bad == ()
        self.assert_rows(decoded, [1, 2, 3, 4])

    def test_a_slice_of_rows_is_written_like_a_copy(self) -> None:
        """Rows may be a slice."""
        sliced = self.encoder().encode(self.rows(9)[2:7]).messages

        assert sliced.to_pylist() == [self.message(i)[0] for i in range(2, 7)]

    def test_rows_with_sliced_columns_are_written_like_a_copy(self) -> None:
        """The columns of rows may be slices."""
        rows = self.rows(9)
        columns = [column[2:7] for column in rows.flatten()]
        sliced = pa.StructArray.from_arrays(columns, fields=list(rows.type))

        assert self.encoder().encode(sliced).messages.to_pylist() == [self.message(i)[0] for i in range(2, 7)]

    @pytest.mark.parametrize("indices", [[0], [4], [9], [0, 4, 9], [3, 4, 5], list(range(10))])
    def test_a_bad_message_is_reported_by_its_index_and_does_not_affect_others(self, indices: list[int]) -> None:
        """Bad messages are reported with a reason, and the rows of the others are complete."""
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
        """A bad message is an error also in a batch of its own."""
        for message in self.bad_messages():
            decoded = self.check(self.decoder().decode(pa.array([message], pa.binary())))

            assert ([record.index for record in decoded.bad], len(decoded.rows)) == ([0], 0), message

    @pytest.mark.parametrize("name", DAMAGE)
    def test_a_damaged_message_gets_one_result_with_its_location(self, name: str) -> None:
        """Damage of many kinds gives a row or an error, never an exception."""
        self.assert_one_answer(DAMAGE[name](self.message(7)[0]))

    @pytest.mark.parametrize("seed", range(20))
    def test_random_damage_gets_one_result_with_its_location(self, seed: int) -> None:
        """Random bytes in random places give a row or an error, never an exception."""
        choice = random.Random(seed)  # noqa: S311  # damage, not a secret
        message = self.message(choice.randrange(100))[0]
        for _ in range(choice.randint(1, 4)):
            start = choice.randint(0, len(message))
            message = message[:start] + choice.randbytes(choice.randrange(9)) + message[start + choice.randrange(9) :]
        self.assert_one_answer(message)

    def assert_one_answer(self, message: bytes) -> None:
        """Fail unless a message gives the same alone as among others, which it leaves as they are."""
        alone = self.check(self.decoder().decode(pa.array([message], pa.binary())))
        around = self.messages(AROUND).to_pylist()
        among = self.check(self.decoder().decode(pa.array([*around, message, *around], pa.binary())))
        owners = self.owners(among)
        mine = [index for index, owner in enumerate(owners) if owner == AROUND]
        others = [index for index, owner in enumerate(owners) if owner != AROUND]

        assert among.bad == tuple(BadRecord(AROUND, one.reason) for one in alone.bad)
        assert all(0 < len(one.reason) < 500 for one in alone.bad), "a reason is a short sentence"
        assert row_strings(among.rows.take(pa.array(mine, pa.int64()))) == row_strings(alone.rows)
        assert [kinds(among)[index] for index in mine] == kinds(alone)
        self.assert_rows(Decoded(among.rows.take(pa.array(others))), [*range(AROUND), *range(AROUND)])

    def test_ignored_errors_are_not_reported(self) -> None:
        """A lenient format reports no bad message."""
        if self.lenient is None:
            assert not any(variant.is_lenient for variant in self.all_variants()), "name the lenient format"
            return
        assert self.lenient.is_lenient, "no option of the format decides is_lenient"
        bad = self.bad_messages()
        messages = [self.message(0)[0], *bad, self.message(1)[0]]
        decoded = self.check(self.lenient.decoder(self.row).decode(pa.array(messages, pa.binary())))
        owners = self.owners(decoded)

        assert decoded.bad == ()
        self.assert_rows(Decoded(decoded.rows.take(pa.array([0, len(owners) - 1]))), [0, 1])

    def test_what_was_written_reads_back(self) -> None:
        """Rows of `rows_to_write` have no problems, and are the same after a write and a read."""
        for row, values in self.rows_to_write():
            assert errors([*self.format.check(row, "read"), *self.format.check(row, "write")]) == []
            rows = pa.array(values, arrow_type(row))
            encoded = self.encoder(row).encode(rows)
            assert encoded.bad == ()
            decoded = self.check(self.decoder(row).decode(encoded.messages), row)

            assert decoded.bad == ()
            assert row_strings(decoded.rows) == row_strings(rows)

    def test_not_null_columns_stay_so_in_the_arrow_type(self) -> None:
        """The type of the rows says which columns are NOT NULL."""
        row = t.Row(tuple(attrs.evolve(f, type=f.type.as_nullable(False)) for f in self.row.fields))
        decoded = self.check(self.decoder(row).decode(self.messages(3)), row)

        assert [field.nullable for field in decoded.rows.type] == [False] * len(row.fields)

    def test_the_same_messages_return_the_same_rows_again_and_from_another_decoder(self) -> None:
        """A decoder keeps nothing of a batch that changes the next one."""
        messages = pa.array([*self.bad_messages(), *self.messages(20).to_pylist(), None], pa.binary())
        decoder = self.decoder()
        results = [decoder.decode(messages), decoder.decode(messages), self.decoder().decode(messages)]

        assert len({repr((row_strings(r.rows), self.owners(r), r.bad)) for r in results}) == 1

    def test_two_decoders_run_in_two_threads(self) -> None:
        """Decoders share nothing that one changes while another uses it."""
        messages = pa.array([*self.messages(500).to_pylist(), *self.bad_messages()], pa.binary())
        expected = row_strings(self.decoder().decode(messages).rows)

        def read(decoder: Decoder) -> list[list[str]]:
            return [row_strings(decoder.decode(messages).rows) for _ in range(5)]

        with ThreadPoolExecutor(2) as pool:
            for item in pool.map(read, [self.decoder(), self.decoder()]):
                assert item == [expected] * 5

    def test_metadata_is_returned_for_the_requested_keys(self) -> None:
        """Each key of `Format.metadata` has one value a row, with the declared type."""
        messages = pa.array(
            [*self.messages(100).to_pylist(), *self.bad_messages(), None, *(self.change(i)[0] for i in range(100))],
            pa.binary(),
        )
        known = tuple(self.format.metadata)
        for wanted in {(), known[:1], known[::-1], known}:
            decoded = self.check(self.decoder(use=Use(metadata=wanted)).decode(messages))

            assert tuple(decoded.metadata) == wanted
            for key, array in decoded.metadata.items():
                array.validate(full=True)
                assert array.type == arrow_type(self.format.metadata[key])
                assert len(array) == len(decoded.rows)

    def test_changes_are_read_in_order_whatever_the_size_of_the_batch(self) -> None:
        """The kinds and rows of changes are those of the subclass, in order."""
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
        """A format of changes keeps whether a row is there or gone; an update may become a delete and an insert."""
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

    def test_a_prunable_format_reads_some_of_the_columns(self) -> None:
        """If `Format.prunable` says so, a decoder for one column returns the values of one for all columns."""
        for field in self.row.fields if self.format.prunable() else ():
            row = t.Row((field,))
            decoded = self.check(self.decoder(row).decode(self.messages(50)), row)

            assert plain_values(decoded.rows.field(0)) == plain_values(self.rows(50).field(field.name))

    def test_what_an_observer_accepts_is_read(self) -> None:
        """A format for ingestions (`Format.ingests`) finds tables and columns with which its messages are read."""
        observer = self.format.observer()
        assert observer is not None or not self.format.ingests, "the format declares ingests, and has no observer"
        if observer is None:
            return
        messages = pa.array([*self.messages(100).to_pylist(), *self.bad_messages()], pa.binary())
        observed = observer.observe(messages, {})
        tables = observed.tables.to_pylist()

        assert (observed.tables.type, len(tables)) == (pa.int32(), len(messages))
        bad = {one.index for one in observed.bad}
        assert all(tables[i] is not None or i in bad for i in range(100)), "a message that is not bad has a table"
        deltas = {delta.table: delta for delta in observed.deltas}
        for index, table in enumerate(observed.ids):
            schema = join_schemas(None, deltas[table].schema)
            assert schema is not None
            own = [i for i, of in enumerate(tables) if of == index]
            decoder = self.format.reading_observed().decoder(schema.row)
            decoded = self.check(decoder.decode(messages.take(pa.array(own))), schema.row)

            assert decoded.bad == ()
            assert observer.observe(messages.take(pa.array(own)), {table: schema}).deltas == ()

    def test_changes_of_a_table_are_written(self) -> None:
        """A format for the values of Kafka sinks (`Format.emits`) writes inserts whose rows read back."""
        encoder = self.format.change_encoder(self.row, ("shop", "orders"), self.row.names[:1])
        assert encoder is not None or "value" not in self.format.emits, "the format has no change_encoder"
        if encoder is None:
            return
        indices = pa.array(range(10), pa.int64())
        encoded = encoder.encode(self.rows(10), pa.nulls(10, pa.int64()), indices)
        decoded = self.check(self.decoder().decode(encoded.messages))

        assert (encoded.bad, decoded.bad, kinds(decoded)) == ((), (), ["+I"] * 10)
        self.assert_rows(decoded, list(range(10)))

    def test_options_that_decide_have_the_values_that_kdsl_knows(self) -> None:
        """`Format.on_unavailable` and `Format.on_truncate` are values of their types, whatever the options."""
        for variant in self.all_variants():
            assert variant.on_unavailable in (None, *get_args(OnUnavailable))
            assert variant.on_truncate in get_args(OnTruncate)
            assert variant.has_inline_schemas in (None, False, True)

    def test_the_format_is_found_by_its_name(self) -> None:
        """The format is registered in the entry-point group ``kdsl.formats`` under its identifier."""
        assert format_class(self.format.identifier) is type(self.format)

    def test_the_variants_have_no_problems_and_set_every_option(self) -> None:
        """Each option of the format is tested with another value than its default."""
        changed = {key for variant in self.all_variants() for key in variant.to_strings()}

        assert errors(problem for variant in self.all_variants() for problem in variant.problems()) == []
        assert changed == option_keys(type(self.format)), "add variants that set the other options"

    def test_options_survive_flinks_keys_and_strings(self) -> None:
        """Options are the same after they were written in SQL or YAML."""
        for variant in self.all_variants():
            assert type(variant).from_strings(variant.to_strings()) == variant

    def test_a_format_survives_pickling(self) -> None:
        """A format travels to executors."""
        for variant in self.all_variants():
            copied = pickle.loads(pickle.dumps(variant))  # noqa: S301  # pickled here

            assert (copied, list(copied.problems())) == (variant, list(variant.problems()))

    def test_an_unknown_option_is_reported_with_a_suggestion(self) -> None:
        """A misspelled option is a problem that names the right one."""
        for key in sorted(option_keys(type(self.format))):
            wrong = f"{key}s"
            problems = list(type(self.format).from_strings({**self.format.to_strings(), wrong: "x"}).problems())

            assert [p.code for p in problems] == ["option-unknown"]
            assert f"the format '{self.format.identifier}' has no option '{wrong}'" in problems[0].message
            assert "did you mean" in problems[0].message
            assert repr(key) in problems[0].fix


def option_keys(kind: type[Format]) -> set[str]:
    """Return Flink's keys of a format's options."""
    return {a.metadata["key"] for a in attrs.fields(kind)}


def errors(problems: Iterable[Problem]) -> list[str]:
    """Return the problems that are errors, as text."""
    return [str(problem) for problem in problems if problem.severity == "error"]


def kinds(decoded: Decoded) -> list[str]:
    """Return the kind of each row; without kinds all are inserts."""
    if decoded.kinds is None:
        return ["+I"] * len(decoded.rows)
    return [ROW_KINDS[code] for code in decoded.kinds.to_pylist()]


def row_strings(rows: pa.StructArray) -> list[str]:
    """Return rows as strings, by which NaN equals NaN and 0.0 differs from -0.0."""
    return [repr(row) for row in plain_values(rows)]
