from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given, settings, strategies as st

from kdsl.errors import KdslError
from kdsl.own_columns import KIND
from kdsl.sql_tokens import Cursor, tokenize
from kdsl.types import model as t
from kdsl.types.parse import TypeReader, TypeSyntaxError, parse_type
from tests import strategies

SPELLINGS: dict[str, t.DataType] = {
    "BOOLEAN": t.Boolean(),
    "TINYINT": t.TinyInt(),
    "SMALLINT": t.SmallInt(),
    "INT": t.Int(),
    "INTEGER": t.Int(),
    "BIGINT": t.BigInt(),
    "FLOAT": t.Float(),
    "DOUBLE": t.Double(),
    "DOUBLE PRECISION": t.Double(),
    "DECIMAL": t.Decimal(10, 0),
    "DEC(5)": t.Decimal(5, 0),
    "NUMERIC(38, 38)": t.Decimal(38, 38),
    "DECIMAL( 10 ,2 )": t.Decimal(10, 2),
    "CHAR": t.Char(1),
    "CHARACTER(3)": t.Char(3),
    "CHARACTER VARYING(3)": t.VarChar(3),
    "CHAR VARYING": t.STRING,
    "VARCHAR": t.STRING,
    "VARCHAR(7)": t.VarChar(7),
    "VARCHAR(2147483647)": t.STRING,
    "STRING": t.STRING,
    "BINARY": t.Binary(1),
    "BINARY(4)": t.Binary(4),
    "BINARY VARYING(4)": t.VarBinary(4),
    "VARBINARY": t.BYTES,
    "VARBINARY(4)": t.VarBinary(4),
    "BYTES": t.BYTES,
    "DATE": t.Date(),
    "TIME": t.Time(0),
    "TIME(3)": t.Time(3),
    "TIME(3) WITHOUT TIME ZONE": t.Time(3),
    "TIMESTAMP": t.Timestamp(6),
    "TIMESTAMP(9)": t.Timestamp(9),
    "TIMESTAMP(0) WITHOUT TIME ZONE": t.Timestamp(0),
    "TIMESTAMP WITHOUT TIME ZONE": t.Timestamp(6),
    "TIMESTAMP WITH LOCAL TIME ZONE": t.TimestampLtz(6),
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": t.TimestampLtz(3),
    "TIMESTAMP_LTZ": t.TimestampLtz(6),
    "TIMESTAMP_LTZ(3)": t.TimestampLtz(3),
    "ARRAY<INT>": t.Array(t.Int()),
    "INT ARRAY": t.Array(t.Int()),
    "INT NOT NULL ARRAY NOT NULL": t.Array(t.Int(nullable=False), nullable=False),
    "MULTISET<STRING>": t.Multiset(t.STRING),
    "STRING MULTISET": t.Multiset(t.STRING),
    "INT ARRAY MULTISET NOT NULL": t.Multiset(t.Array(t.Int()), nullable=False),
    "MAP<STRING NOT NULL, ARRAY<INT>>": t.Map(t.VarChar(nullable=False), t.Array(t.Int())),
    "ROW<>": t.Row(()),
    "ROW()": t.Row(()),
    "ROW<a INT, b STRING>": t.row(a=t.Int(), b=t.STRING),
    "ROW(a INT, b STRING NOT NULL) NOT NULL": t.Row(
        (t.Field("a", t.Int()), t.Field("b", t.VarChar(nullable=False))), nullable=False
    ),
    "ROW<a INT 'it''s', `b ``c` STRING NOT NULL 'x'>": t.Row(
        (t.Field("a", t.Int(), "it's"), t.Field("b `c", t.VarChar(nullable=False), "x"))
    ),
    "ROW<a ROW<b ROW<c INT>>>": t.row(a=t.row(b=t.row(c=t.Int()))),
    "ROW<date DATE, `timestamp` TIMESTAMP(3), row ROW<map MAP<INT, INT>>, not INT NOT NULL>": t.Row(
        (
            t.Field("date", t.Date()),
            t.Field("timestamp", t.Timestamp(3)),
            t.Field("row", t.row(map=t.Map(t.Int(), t.Int()))),
            t.Field("not", t.Int(nullable=False)),
        )
    ),
    "ROW<naïve INT, _x$1 INT>": t.Row((t.Field("naïve", t.Int()), t.Field("_x$1", t.Int()))),
    "INT NULL": t.Int(),
    "INT NOT NULL": t.Int(nullable=False),
    "  int  ": t.Int(),
    "TimeStamp_Ltz(3) nOt NuLl": t.TimestampLtz(3, nullable=False),
    "ARRAY<INT -- of minutes\n> /* not\n null */ NOT NULL": t.Array(t.Int(), nullable=False),
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_each_spelling_means_its_type(text: str) -> None:
    assert parse_type(text) == SPELLINGS[text]


@given(strategies.types())
@settings(deadline=None)
def test_a_type_survives_parsing_its_string(kind: t.DataType) -> None:
    assert parse_type(str(kind)) == kind


@given(strategies.scalar_types())
@settings(deadline=None)
def test_letter_case_does_not_matter(kind: t.DataType) -> None:
    assert parse_type(str(kind).lower()) == kind


def complaint(text: str) -> TypeSyntaxError:
    with pytest.raises(TypeSyntaxError) as caught:
        parse_type(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "the text ends where a type is expected"),
        ("  -- nothing", 12, "the text ends where a type is expected"),
        ("ROW<a INT", 9, "the text ends where ',', '>' or a comment in quotes is expected"),
        ("ARRAY", 5, "the text ends where '<' is expected"),
        ("MAP<INT>", 7, "found '>' where ',' is expected"),
        ("DECIMAL(a)", 8, "found 'a' where a number is expected"),
        ("INT INT", 4, "found 'INT' where ARRAY, MULTISET, NOT, NULL or the end is expected"),
        ("INT;", 3, "found ';' where ARRAY, MULTISET, NOT, NULL or the end is expected"),
        ("€", 0, "found '€' where a type is expected"),
        ("ROW<`a INT>", 4, "found '`' where '>', a name or a name in back-ticks is expected"),
        ("DECIMAL(0)", 8, "the precision of DECIMAL is a number from 1 to 38, not 0"),
        ("DECIMAL(39)", 8, "the precision of DECIMAL is a number from 1 to 38, not 39"),
        ("DECIMAL(3, 4)", 11, "the scale of DECIMAL(3, …) is a number from 0 to 3, not 4"),
        ("DECIMAL(-3)", 8, "found '-' where a number is expected"),
        ("CHAR(0)", 5, "the length of CHAR is a number from 1 to 2147483647, not 0"),
        ("VARCHAR(2147483648)", 8, "the length of VARCHAR is a number from 1 to 2147483647, not 2147483648"),
        ("BINARY(0)", 7, "the length of BINARY is a number from 1 to 2147483647, not 0"),
        ("VARBINARY(0)", 10, "the length of VARBINARY is a number from 1 to 2147483647, not 0"),
        ("TIME(10)", 5, "the precision of TIME is a number from 0 to 9, not 10"),
        ("TIMESTAMP(10)", 10, "the precision of TIMESTAMP is a number from 0 to 9, not 10"),
        ("TIMESTAMP_LTZ(10)", 14, "the precision of TIMESTAMP_LTZ is a number from 0 to 9, not 10"),
        ("ROW<a INT, `a` INT>", 11, "the row has two members 'a'; give one of them another name"),
        ("ROW<`` INT>", 4, "a name cannot be empty"),
    ],
)
def test_an_error_names_position_and_reason(text: str, position: int, reason: str) -> None:
    error = complaint(text)

    assert (error.position, error.reason) == (position, reason)


@pytest.mark.parametrize("text", ["INTX", "ARRAY<INTX>", "ROW<a INTX>"])
def test_a_word_that_begins_like_a_type_is_one_unknown_word(text: str) -> None:
    assert complaint(text).reason.startswith("there is no type 'INTX'")


def test_an_unknown_type_offers_the_nearest_name() -> None:
    error = complaint("ROW<a SRTING>")

    assert error.position == 6
    assert error.reason.startswith("there is no type 'SRTING' (did you mean 'STRING'?); the types are 'BOOLEAN', ")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("TIMESTAMP(3) WITH TIME ZONE", "declare TIMESTAMP_LTZ, which is an instant"),
        ("INTERVAL DAY(3) TO SECOND(6)", "declare a BIGINT, as of milliseconds"),
        ("RAW('java.lang.Object', 'AA==')", "declare BYTES"),
        ("STRUCTURED<'a.B', x INT>", "declare a ROW<…> with its members"),
        ("VARIANT", "declare a STRING and read the JSON text in the query"),
        ("ARRAY<NULL>", "declare the type that the column has when it is not null"),
        ("`cat`.`db`.`kind`", "declare a ROW<…>"),
        ("cat.db.kind", "declare a ROW<…>"),
    ],
)
def test_a_type_of_flink_that_no_column_can_have_is_named_as_such(text: str, hint: str) -> None:
    assert complaint(text).reason.endswith(hint)


def test_an_error_shows_the_line_and_points_at_the_word() -> None:
    error = complaint("ROW<a INT,\n  b DECIMAL(40)>")

    assert (error.line, error.column) == (2, 13)
    assert str(error) == (
        "not a column type at line 2, column 13: the precision of DECIMAL is a number from 1 to 38, not 40\n"
        "    b DECIMAL(40)>\n"
        "              ^^"
    )


def test_an_error_is_a_value_error_and_survives_pickling() -> None:
    error = complaint("ARRAY<INT")
    copied = pickle.loads(pickle.dumps(error))

    assert isinstance(error, ValueError)
    assert isinstance(error, KdslError)
    assert (str(copied), copied.expected) == (str(error), ("'>'",))


def test_a_string_that_was_parsed_before_returns_the_same_object() -> None:
    assert parse_type("ROW<a DECIMAL(10, 2)>") is parse_type("ROW<a DECIMAL(10, 2)>")


@pytest.mark.parametrize(
    ("text", "kind", "rest"),
    [
        ("DECIMAL(3, 1) NOT NULL METADATA", t.Decimal(3, 1, nullable=False), "METADATA"),
        ("ROW<b ROW<>> ARRAY, c INT", t.Array(t.row(b=t.Row(()))), ","),
        ("TIMESTAMP(3) WITH ('connector' = 'kafka')", t.Timestamp(3), "WITH"),
        ("INT) AS x", t.Int(), ")"),
    ],
)
def test_a_reader_leaves_its_cursor_after_the_type(text: str, kind: t.DataType, rest: str) -> None:
    cursor = Cursor(tokenize(text))

    assert TypeReader(cursor, text).read() == kind
    assert cursor.token.text == rest


def test_a_reader_can_leave_null_to_what_follows() -> None:
    text = "BIGINT NULL ON EMPTY"
    cursor = Cursor(tokenize(text))

    assert TypeReader(cursor, text).read(nullability=False) == t.BigInt()
    assert cursor.at("NULL", "ON", "EMPTY")


WORDS = sorted({word for text in SPELLINGS for word in re.findall(r"\w+|`[^`]*`|'[^']*'|\S", text)})


@given(st.lists(st.sampled_from([*WORDS, "…", "<>", ";", "1.5", "X'0a'", "/*+ x */", "--"]), max_size=12))
def test_whatever_is_read_is_a_type_or_an_error_at_a_position(words: list[str]) -> None:
    text = " ".join(words)

    position = 0
    try:
        kind = parse_type(text)
    except TypeSyntaxError as e:
        kind, position = t.Int(), e.position

    assert 0 <= position <= len(text)
    assert parse_type(str(kind)) == kind


def test_a_type_that_is_nested_too_deeply_is_refused() -> None:
    assert parse_type("ARRAY<" * 99 + "INT" + ">" * 99).spelling.count("ARRAY") == 99
    with pytest.raises(TypeSyntaxError, match="nested more than 100 deep"):
        parse_type("ARRAY<" * 2000 + "INT" + ">" * 2000)


def test_plans_have_the_names_of_own_columns() -> None:
    row = t.Row((t.Field(KIND, t.STRING),))

    assert parse_type(str(row), allow_reserved=True) == row
    with pytest.raises(TypeSyntaxError):
        parse_type(str(row))
