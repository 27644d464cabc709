"""A message type as a row type."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.types import model as t
from kdsl_formats.protobuf.layout import find_problems
from kdsl_formats.protobuf.schema import comments_of, row_of
from kdsl_formats.protobuf.sources import Schema, compile_files, schema_of
from tests.formats.protobuf_messages import HEADS, everything

DATA = Path(__file__).parent / "data" / "protobuf"


def schema(name: str) -> Schema:
    return schema_of(name, compile_files(sorted(DATA.glob("*.proto")), [DATA]))


def test_the_row_of_a_proto3_message() -> None:
    row = row_of(schema("Order").message)
    shown = {f.name: str(f.type) for f in row.fields}

    assert shown == {
        "id": "BIGINT NOT NULL",
        "note": "STRING",
        "place": "STRING NOT NULL",
        "tags": "ARRAY<STRING NOT NULL>",
        "counts": "MAP<STRING NOT NULL, BIGINT NOT NULL>",
        "placed_at": "TIMESTAMP_LTZ(6)",
        "nickname": "STRING",
        "extra": "STRING",
        "customer": "ROW<`name` STRING NOT NULL, `age` INT, `parent` BYTES>",
        "card": "STRING",
        "invoice": "BIGINT",
        "size": "BIGINT NOT NULL",
        "weight": "DECIMAL(20, 0) NOT NULL",
        "amount": "DOUBLE NOT NULL",
        "paid": "BOOLEAN NOT NULL",
        "data": "BYTES NOT NULL",
    }


def test_required_fields_are_not_null() -> None:
    assert row_of(schema("Needy").message) == t.row(
        a=t.Int(nullable=False), b=t.STRING, c=t.row(x=t.Int(nullable=False), y=t.Int())
    )


def test_the_row_as_flink_has_it() -> None:
    row = row_of(schema("Moment").message, well_known=False, nullable=True)

    assert row == t.row(ts=t.row(seconds=t.BigInt(), nanos=t.Int()))


def test_comments_become_comments_of_columns() -> None:
    files = compile_files([DATA / "two.proto"])
    comments = comments_of(files)
    row = row_of(schema("Simple").message, comments)
    by_name = {f.name: f.comment for f in row.fields}

    assert comments["kdsl.test.Simple"] == "One field of each kind; some have defaults."
    assert (by_name["a"], by_name["f"], by_name["b"]) == ("a number with a default", "A text of two lines.", None)


@pytest.mark.parametrize("syntax", HEADS)
@pytest.mark.parametrize("well_known", [True, False])
def test_the_row_of_every_message_can_be_read_and_written(syntax: str, *, well_known: bool) -> None:
    message = everything(syntax).message

    assert list(find_problems(message, row_of(message, well_known=well_known), writing=True)) == []
