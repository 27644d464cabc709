from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import BadRecord, Decoded
from kdsl_formats._columns.merge import merge_decoded
from kdsl_formats._registry.framing import NO_ID, Ids, add_frames, frame_of, split_frames

KIND = pa.struct([pa.field("x", pa.binary())])


def split(messages: pa.BinaryArray) -> tuple[Ids, pa.BinaryArray, tuple[BadRecord, ...]]:
    frames = split_frames(messages)
    return frames.ids, frames.bodies, frames.bad


def add_frame(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=12), st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=9))))
)
def test_a_frame_is_parsed_from_its_bytes(given_messages: list[bytes | tuple[int, bytes] | None]) -> None:
    plain = [add_frame(*m) if isinstance(m, tuple) else m for m in given_messages]
    ids, bodies, bad = split(pa.array(plain, pa.binary()))

    good = [m is not None and len(m) >= 5 and m[0] == 0 for m in plain]
    assert ids.tolist() == [
        int.from_bytes(m[1:5], "big") if g and m else NO_ID for m, g in zip(plain, good, strict=True)
    ]
    assert bodies.to_pylist() == [m[5:] if g and m else None for m, g in zip(plain, good, strict=True)]
    assert [b.index for b in bad] == [
        i for i, (m, g) in enumerate(zip(plain, good, strict=True)) if m is not None and not g
    ]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.one_of(st.none(), st.binary(max_size=9))))
def test_what_is_framed_comes_apart_again(number: int, bodies: list[bytes | None]) -> None:
    ids, result, bad = split(add_frames(frame_of(number), pa.array(bodies, pa.binary())))

    assert result.to_pylist() == bodies
    assert ids.tolist() == [NO_ID if body is None else number for body in bodies]
    assert bad == ()


def test_a_slice_is_split_like_a_copy() -> None:
    messages = pa.array([add_frame(i, b"x" * i) for i in range(9)], pa.binary())
    ids, bodies, bad = split(messages[2:6])

    assert (ids.tolist(), bodies.to_pylist(), bad) == ([2, 3, 4, 5], [b"x" * i for i in range(2, 6)], ())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "the message has 0 bytes, which is less than the frame"),
        (b"\0", "the message has 1 byte, which is less than"),
        (b"\0\0\0\1", "the message has 4 bytes"),
        (b'{"a":1}', "the message begins with the byte 123, not with the frame of a schema registry"),
        (b"\1\0\0\0\1\2", "the message begins with the byte 1, but its 6 bytes are less than the frame of a schema"),
        (b"\3\0" + bytes(15), "the message begins with the byte 3, not with the frame of a schema registry"),
    ],
)
def test_a_message_without_a_frame_is_reported(message: bytes, reason: str) -> None:
    (bad,) = split_frames(pa.array([message], pa.binary())).bad

    assert (bad.index, bad.reason[: len(reason)]) == (0, reason)


@settings(deadline=None)
@given(st.lists(st.integers(-1, 3), max_size=40))
def test_rows_of_groups_come_in_the_order_of_their_messages(numbers: list[int]) -> None:
    plain = [None if n < 0 else add_frame(n, str(i).encode()) for i, n in enumerate(numbers)]
    frames = split_frames(pa.array(plain, pa.binary()))
    ids, bodies = frames.ids, frames.bodies
    parts = []
    bad = []
    for number, indices in frames.groups():
        own = bodies if indices is None else bodies.take(pa.array(indices))
        if number == 3:
            bad += [BadRecord(int(i), "no") for i in (range(len(ids)) if indices is None else indices)]
            continue
        parts.append((indices, Decoded(pa.StructArray.from_arrays([own], fields=list(KIND)))))
    decoded = merge_decoded(parts, bad, Decoded(pa.array([], KIND)))

    results = [i for i, n in enumerate(numbers) if 0 <= n < 3]
    owners = list(range(len(ids))) if decoded.messages is None else decoded.messages.to_pylist()
    assert owners == results
    assert [row["x"] for row in decoded.rows.to_pylist()] == [str(i).encode() for i in results]
    assert [b.index for b in decoded.bad] == [i for i, n in enumerate(numbers) if n == 3]


@pytest.mark.parametrize("compression", [0, 5])
def test_a_message_of_glue_s_registry_is_named(compression: int) -> None:
    """AWS Glue's frame: the byte 3, the compression (0 for none, 5 for zlib), and the UUID of the schema's version."""
    version = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
    (bad,) = split_frames(pa.array([bytes([3, compression]) + version.bytes + b"\2x"], pa.binary())).bad

    assert "it looks like a message of AWS Glue Schema Registry" in bad.reason
    assert str(version) in bad.reason
    assert split_frames(pa.array([bytes([3, 1]) + version.bytes], pa.binary())).bad[0].reason.endswith("of four bytes)")


named = st.one_of(st.integers(0, 2**32 - 1), st.uuids())


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(named, st.binary(max_size=9)))), st.integers(0, 3))
def test_ids_and_guids_are_distinct(messages: list[tuple[int | UUID, bytes] | None], skipped: int) -> None:
    plain = [None if m is None else frame_of(m[0]) + m[1] for m in messages]
    frames = split_frames(pa.array(plain, pa.binary())[skipped:])
    rest = messages[skipped:]

    assert frames.bad == ()
    assert frames.bodies.to_pylist() == [None if m is None else m[1] for m in rest]
    schema_ids: dict[int, int | UUID] = {}
    for schema_id, indices in frames.groups():
        schema_ids |= dict.fromkeys(range(len(rest)) if indices is None else indices.tolist(), schema_id)
    assert schema_ids == {i: m[0] for i, m in enumerate(rest) if m is not None}
    shown = frames.add_schema_ids(Decoded(pa.array([{}] * len(rest), pa.struct([]))), ["id"], lambda guid: None)
    numbers = [NO_ID if m is None else m[0] if isinstance(m[0], int) else None for m in rest]
    assert shown.metadata["id"].to_pylist() == [n if n is None or n < 2**31 else n - 2**32 for n in numbers]
