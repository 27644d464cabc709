"""Annotations as column types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict

import attrs
import pytest
from pyspark.sql import types as s

from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.python import (
    AnnotationError,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    SqlType,
    TimestampLtz,
    TimestampNtz,
    column_type,
    sql_type,
)

UserId = NewType("UserId", int)


class Channel(Enum):
    WEB = "web"
    APP = "app"


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    A = 1
    B = "b"


@attrs.frozen
class City:
    name: str
    people: int | None


@dataclasses.dataclass
class Place:
    city: City
    at: tuple[float, ...]


class Pair(NamedTuple):
    key: str
    value: bytes | None


class Loose(TypedDict):
    a: int
    b: NotRequired[str]


@attrs.frozen
class Chain:
    next: Chain | None


@attrs.frozen
class Unknown:
    city: Citty  # type: ignore[name-defined]  # noqa: F821


@attrs.frozen
class Empty:
    pass


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, "BIGINT NOT NULL"),
        (float, "DOUBLE NOT NULL"),
        (bool, "BOOLEAN NOT NULL"),
        (str, "STRING NOT NULL"),
        (bytes, "BYTES NOT NULL"),
        (Decimal, "DECIMAL(38, 18) NOT NULL"),
        (date, "DATE NOT NULL"),
        (time, "TIME(6) NOT NULL"),
        (datetime, "TIMESTAMP_LTZ(6) NOT NULL"),
        (int | None, "BIGINT"),
        (Optional[str], "STRING"),  # noqa: UP045
        (Annotated[int, "a note"] | None, "BIGINT"),
        (Annotated[int | None, "a note"], "BIGINT"),
        (list[int], "ARRAY<BIGINT NOT NULL> NOT NULL"),
        (list[int | None] | None, "ARRAY<BIGINT>"),
        (Sequence[str], "ARRAY<STRING NOT NULL> NOT NULL"),
        (tuple[str, ...], "ARRAY<STRING NOT NULL> NOT NULL"),
        (dict[str, float | None], "MAP<STRING NOT NULL, DOUBLE> NOT NULL"),
        (Mapping[str, list[bool]], "MAP<STRING NOT NULL, ARRAY<BOOLEAN NOT NULL> NOT NULL> NOT NULL"),
        (City, "ROW<name STRING NOT NULL, people BIGINT> NOT NULL"),
        (
            Place | None,
            "ROW<city ROW<name STRING NOT NULL, people BIGINT> NOT NULL, at ARRAY<DOUBLE NOT NULL> NOT NULL>",
        ),
        (list[Pair], "ARRAY<ROW<key STRING NOT NULL, value BYTES> NOT NULL> NOT NULL"),
        (Loose, "ROW<a BIGINT NOT NULL, b STRING> NOT NULL"),
        (Channel, "STRING NOT NULL"),
        (Level | None, "BIGINT"),
        (Literal["a", "b"], "STRING NOT NULL"),
        (Literal[1, 2] | None, "BIGINT"),
        (UserId, "BIGINT NOT NULL"),
        (Int8, "TINYINT NOT NULL"),
        (Int16, "SMALLINT NOT NULL"),
        (Int32 | None, "INT"),
        (Int64, "BIGINT NOT NULL"),
        (Float32, "FLOAT NOT NULL"),
        (Float64, "DOUBLE NOT NULL"),
        (TimestampLtz, "TIMESTAMP_LTZ(6) NOT NULL"),
        (TimestampNtz, "TIMESTAMP(6) NOT NULL"),
        (list[Int32], "ARRAY<INT NOT NULL> NOT NULL"),
        (Annotated[int, s.IntegerType()], "INT NOT NULL"),
        (Annotated[int | None, s.ShortType], "SMALLINT"),
        (Annotated[Decimal, s.DecimalType(10, 2)], "DECIMAL(10, 2) NOT NULL"),
        (Annotated[datetime, s.TimestampNTZType()], "TIMESTAMP(6) NOT NULL"),
        (Annotated[Annotated[int, t.TinyInt()], t.Int()], "INT NOT NULL"),
    ],
    ids=str,
)
def test_an_annotation_becomes_a_column_type(annotation: Any, expected: str) -> None:
    assert str(column_type(annotation)) == str(parse_type(expected))


@pytest.mark.parametrize(
    ("annotation", "explicit", "expected"),
    [
        (Decimal, "decimal(10,2)", "DECIMAL(10, 2) NOT NULL"),
        (Decimal | None, "DECIMAL(10, 2) NOT NULL", "DECIMAL(10, 2)"),
        (int, s.IntegerType(), "INT NOT NULL"),
        (int, s.ByteType, "TINYINT NOT NULL"),
        (str, t.Char(length=3), "CHAR(3) NOT NULL"),
        (dict[str, int], "MULTISET<STRING>", "MULTISET<STRING> NOT NULL"),
        (City, "ROW<name CHAR(2), people INT>", "ROW<name CHAR(2), people INT> NOT NULL"),
        (Any, "ROW<a INT>", "ROW<a INT> NOT NULL"),
        (Any, t.Boolean, "BOOLEAN NOT NULL"),
        (Annotated[int, t.TinyInt()], "INT", "INT NOT NULL"),
    ],
    ids=str,
)
def test_an_explicit_type_replaces_the_derived_one_except_its_nullability(
    annotation: Any, explicit: SqlType, expected: str
) -> None:
    assert column_type(annotation, explicit) == parse_type(expected)


@pytest.mark.parametrize(
    ("annotation", "explicit", "message", "fix"),
    [
        (
            int | str,
            None,
            "int | str is a union of types, but a column has one type",
            "choose one of them; '| None' makes it nullable",
        ),
        (list, None, "list does not name the type of its elements", "write it, as list[str]"),
        (dict, None, "dict does not name the type of its elements", "write it, as dict[str, int]"),
        (
            dict[str | None, int],
            None,
            "the keys of str | None may be None",
            "a key of a map is never NULL",
        ),
        (Mixed, None, "Mixed has values of int and str", "make all of them strings, or all of them integers"),
        (Chain, None, "Chain.next: Chain contains itself", "a row has a fixed depth; remove the inner one"),
        (Empty, None, "Empty has no fields", "declare at least one"),
        (
            Unknown,
            None,
            "Unknown.city: the annotation 'Citty' cannot be read: there is no name 'Citty'",
            "import or define the name in the module of the class",
        ),
        (int, "string", "values of STRING are not of type int", "annotate it as str, or choose a type like BIGINT"),
        (
            list[str],
            "ARRAY<INT>",
            "values of ARRAY<INT> are not of type list[str]",
            "annotate it as list[int], or choose a type like ARRAY<STRING NOT NULL>",
        ),
        (
            City,
            "ROW<nme STRING, people INT>",
            "values of ROW<`nme` STRING, `people` INT> are not of type City",
            "annotate it as a class with the fields nme, people, or choose a type like "
            "ROW<`name` STRING NOT NULL, `people` BIGINT>",
        ),
        (
            int,
            "itn",
            "the type 'itn' cannot be read: there is no type 'itn' (did you mean 'INT'?); the types are 'BOOLEAN', "
            "'TINYINT', 'SMALLINT', 'INT', 'INTEGER', 'BIGINT', 'FLOAT', 'DOUBLE', 'DECIMAL', 'DEC', 'NUMERIC', "
            "'CHAR', 'CHARACTER', 'VARCHAR', 'STRING', 'BINARY', 'VARBINARY', 'BYTES', 'DATE', 'TIME', 'TIMESTAMP', "
            "'TIMESTAMP_LTZ', 'ARRAY', 'MAP', 'MULTISET' and 'ROW'",
            "write SQL, as 'DECIMAL(10, 2)', or a Spark type, as DecimalType(10, 2)",
        ),
        (
            int,
            s.VariantType(),
            "the type VariantType() cannot be used: Spark's variant has no counterpart among the column types of a "
            "Kafka table",
            "write SQL, as 'DECIMAL(10, 2)', or a Spark type, as DecimalType(10, 2)",
        ),
        (int, 5, "5 is not a column type", "write SQL, as 'DECIMAL(10, 2)', or a Spark type, as DecimalType(10, 2)"),
    ],
    ids=str,
)
def test_an_invalid_column_type_is_reported_with_what_to_write(
    annotation: Any, explicit: Any, message: str, fix: str
) -> None:
    with pytest.raises(AnnotationError) as error:
        column_type(annotation, explicit)

    assert (error.value.message, error.value.fix) == (message, fix)


@pytest.mark.parametrize("annotation", [object, Any, None, complex, Callable[[], int], tuple[int, str], set[int], 5])
def test_an_unsupported_type_is_reported_with_supported_ones(annotation: Any) -> None:
    usable = "int, float, Decimal, str, bytes, bool, date, time, datetime, list[...], dict[..., ...] or a dataclass"

    with pytest.raises(AnnotationError) as error:
        column_type(annotation)

    assert error.value.fix.startswith(f"use {usable}")


def test_forward_references_are_evaluated_in_the_given_namespace() -> None:
    names = {"City": City}

    result = column_type(ForwardRef("list[City]"), evaluate=lambda text: eval(text, {}, names))

    assert result == column_type(list[City])


def test_a_misspelled_class_is_reported_with_a_suggestion() -> None:
    with pytest.raises(AnnotationError, match=r"complex is not a column type"):
        column_type(complex)

    class decimal:
        pass

    with pytest.raises(AnnotationError, match=r"decimal is not a column type \(did you mean 'Decimal'\?\)"):
        column_type(decimal)


def test_a_spark_type_class_that_needs_arguments_is_refused() -> None:
    with pytest.raises(AnnotationError, match="the type ArrayType cannot be used"):
        sql_type(s.ArrayType)
