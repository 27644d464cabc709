"""What is wrong with the body of a table class: reported with the line, and with what to write instead."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest

from kdsl import (
    Col,
    Json,
    KafkaTable,
    Key,
    KeyField,
    Metadata,
    ResolveError,
    Virtual,
    as_value,
    col,
    computed,
    metadata,
    virtual,
)
from kdsl.resolve import problems

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def problems_of(table: type[KafkaTable]) -> list[str]:
    """The problems as they are printed, with the table's location shortened to its line."""
    return [f"{p.where.table}.{p.where.column}: {p.message}; {p.fix}" for p in table.definition().problems]


def test_problems_name_file_and_line_of_the_column() -> None:
    class Wrong(KafkaTable, topic="t", value=Json()):
        good: Col[int]
        unknown: Col[Citty]  # type: ignore[name-defined]  # noqa: F821  # cause 0
        typed: Col[int] = col(  # cause 1
            type="string"
        )

        @computed
        def total(self) -> int:  # cause 2
            return self.god  # type: ignore[attr-defined, no-any-return]

    causes = [i for i, line in enumerate(LINES, 1) if line.endswith(("# cause 0", "# cause 1", "# cause 2"))]
    assert [(p.where.file, p.where.line) for p in Wrong.definition().problems] == [(__file__, n) for n in causes]
    assert str(Wrong.definition().problems[1]).startswith("Wrong.typed (")
    assert f":{causes[1]}): values of STRING are not of type int;" in str(Wrong.definition().problems[1])


def test_a_name_that_is_not_a_string_is_reported_although_a_row_was_created_before() -> None:
    class Wrong(KafkaTable, topic="t", value=Json()):
        x: Col[int] = col(name=5)  # type: ignore[call-overload]

    Wrong(x=1)
    assert problems_of(Wrong) == ["Wrong.x: name= is 5, which is not a string; set name= to a string"]
    assert len(problems_of(Wrong)) == 1


def test_an_alias_that_cannot_be_evaluated_is_a_problem_of_its_column() -> None:
    class TypeAliasType:  # that of Python 3.12, whose values are evaluated when they are read
        __value__ = property(lambda _: missing)  # type: ignore[name-defined]  # noqa: F821

        def __str__(self) -> str:
            return "Price"

    class Base:
        other: TypeAliasType()  # type: ignore[valid-type]

    class Wrong(KafkaTable, Base, topic="t", value=Json()):
        price: Col[TypeAliasType()]  # type: ignore[valid-type]

    Base.__annotations__["other"] = TypeAliasType()
    (problem,) = problems_of(Wrong)
    assert problem.startswith("Wrong.price: the alias Price cannot be read: NameError: name 'missing' is not defined")
    TypeAliasType.__value__ = property(lambda alias: alias)
    (problem,) = problems_of(Wrong)
    assert problem == "Wrong.price: the alias Price stands for itself; correct it"


def test_the_resolver_reports_all_of_them_at_once() -> None:
    class Wrong(KafkaTable, topc="t", value=Json()):  # type: ignore[call-arg]
        a: Col[complex]
        b: Col[int] = col(default="x")  # type: ignore[arg-type]

    with pytest.raises(ResolveError) as raised:
        Wrong.schema()

    assert [p.code for p in raised.value.problems] == [
        "argument-unknown",
        "column-type",
        "column-default",
        "topic-missing",
    ]
    assert str(raised.value).startswith(f"Wrong ({__file__}:")


class Reserved(KafkaTable, topic="t", value=Json()):
    schema: Col[str]  # type: ignore[assignment]
    read: Col[int] = col(default=1)  # type: ignore[assignment]
    a: Col[int]


def test_names_of_methods_are_reserved_and_the_methods_stay() -> None:
    assert problems_of(Reserved) == [
        "Reserved.schema: every table class has its own 'schema', so an attribute for a column cannot have this name; "
        "write schema_: ... = col(name='schema')",
        "Reserved.read: every table class has its own 'read', so an attribute for a column cannot have this name; "
        "write read_: ... = col(name='read')",
    ]
    with pytest.raises(ResolveError):
        Reserved.schema()  # type: ignore[operator]


def test_names_that_belong_to_python_are_refused() -> None:
    class Dunder(KafkaTable):
        __raw_key__: Virtual[bytes | None]
        __version: Col[int]

    assert problems_of(Dunder) == [
        "Dunder.__raw_key__: names with two underscores at both ends belong to Python, so an attribute for a column "
        "cannot have this name; write raw_key: ... = col(name='__raw_key__'); for metadata ... = "
        "virtual('__raw_key__') or metadata('__raw_key__')",
        "Dunder._Dunder__version: Python changes the name '__version' inside a class to '_Dunder__version', so an "
        "attribute for a column cannot have this name; write version: ... = col(name='__version')",
    ]


def test_a_column_without_an_annotation_is_refused() -> None:
    class Bare(KafkaTable):
        a = col(default=1)
        b = Metadata("offset")

    assert problems_of(Bare) == [
        "Bare.a: a has no annotation, so its type is unknown; add the type, as in a: Col[int] = ...",
        "Bare.b: b has no annotation, so its type is unknown; add the type, as in b: Col[int] = ...",
    ]


def test_one_column_cannot_be_used_as_two() -> None:
    one: Any = col(default=1)

    class Shared(KafkaTable):
        a: Col[int] = one
        b: Col[int] = one

    assert problems_of(Shared) == [
        "Shared.a: one col() declares several columns; call col() once for each",
        "Shared.b: one col() declares several columns; call col() once for each",
    ]


@attrs.frozen
class City:
    name: str


def test_unreadable_annotations_are_reported_with_a_suggestion() -> None:
    class Unread(KafkaTable):
        a: Col[Citty]  # type: ignore[name-defined]  # noqa: F821
        b: Col[list[City].name]  # type: ignore[valid-type]
        c: Col  # type: ignore[type-arg]
        d: Col[int] | None
        e: Col[Col[int]]

    nested = "Col[int] is not a column type; write the whole type in one pair of brackets, as in Col[int | None]"
    assert problems_of(Unread) == [
        "Unread.a: the annotation 'Col[Citty]' cannot be read: there is no name 'Citty' (did you mean 'City'?); "
        "import or define the name in the module of the class",
        "Unread.b: the annotation 'Col[list[City].name]' cannot be read: AttributeError: type object 'list' has no "
        "attribute 'name'; correct it",
        "Unread.c: Col has no type in brackets; write the type of the values, as in Col[int]",
        f"Unread.d: {nested}",
        f"Unread.e: {nested}",
    ]


def test_mismatched_types_are_reported() -> None:
    class Typed(KafkaTable):
        a: Col[int] = col(type="string")
        b: Col[Decimal] = col(type="decimal(10,")
        c: Col[int | str]

    assert problems_of(Typed) == [
        "Typed.a: values of STRING are not of type int; annotate it as str, or choose a type like BIGINT",
        "Typed.b: the type 'decimal(10,' cannot be read: the text ends where a number is expected; "
        "write SQL, as 'DECIMAL(10, 2)', or a Spark type, as DecimalType(10, 2)",
        "Typed.c: int | str is a union of types, but a column has one type; choose one of them; '| None' makes it "
        "nullable",
    ]


def test_mismatched_defaults_are_reported() -> None:
    class Defaults(KafkaTable):
        a: Col[int] = col(default="x")  # type: ignore[arg-type]
        b: Col[int] = col(default=None)  # type: ignore[arg-type]
        c: Col[Decimal] = col(default=Decimal("1.234"), type="decimal(10, 2)")
        d: Col[datetime] = col(default=datetime(2025, 1, 1))
        e: Virtual[int] = col(default=1)  # type: ignore[assignment]

    assert problems_of(Defaults) == [
        "Defaults.a: the default is not a value of BIGINT NOT NULL: 'x' is not an int; "
        "choose a value of BIGINT NOT NULL",
        "Defaults.b: the default is not a value of BIGINT NOT NULL: it is None, but the column may not be NULL; "
        "choose a value of BIGINT NOT NULL, or add '| None' to the annotation",
        "Defaults.c: the default is not a value of DECIMAL(10, 2) NOT NULL: Decimal('1.234') is not a number with at "
        "most 2 decimal places; choose a value of DECIMAL(10, 2) NOT NULL",
        "Defaults.d: the default is not a value of TIMESTAMP_LTZ(6) NOT NULL: datetime.datetime(2025, 1, 1, 0, 0) is "
        "not a datetime with a zone, as tzinfo=UTC, because it is an instant; "
        "choose a value of TIMESTAMP_LTZ(6) NOT NULL",
        "Defaults.e: a column that is only read cannot have a default; remove default=",
    ]


def test_two_metadata_keys_are_reported() -> None:
    class Twice(KafkaTable):
        a: Annotated[Col[datetime], Metadata("timestamp")] = metadata("timestamp")
        b: Annotated[Virtual[int], Metadata("partition")] = virtual("offset")

    assert problems_of(Twice) == [
        "Twice.b: it names two pieces of metadata, 'offset' and 'partition'; name one of them"
    ]


class NoTable:
    outside: Col[int]
    quiet: int


class WithMixin(NoTable, KafkaTable):
    a: Col[int]


def test_columns_outside_of_tables_are_reported() -> None:
    (problem,) = WithMixin.definition().problems

    assert (problem.message, problem.fix) == (
        "NoTable.outside would be ignored, because NoTable is not a table class",
        "let NoTable inherit from KafkaTable; it needs no topic",
    )


def test_bodies_of_computed_columns_that_cannot_be_expressions_are_reported() -> None:
    class Computed(KafkaTable):
        a: Col[int]
        name: Col[str]
        city: Col[City]

        @computed
        def no_type(self):  # type: ignore[no-untyped-def]
            return self.a

        @computed
        def typo(self) -> int:
            return self.aa  # type: ignore[attr-defined, no-any-return]

        @computed
        def condition(self) -> int:
            return 1 if self.a > 0 else 0

        @computed
        def identity(self) -> bool:
            return self.name is None

        @computed
        def text(self) -> str:
            return f"{self.name}!"

        @computed
        def length(self) -> int:
            return len(self.name)

        @computed
        def outside(self) -> int:
            return math.floor(self.a)

        @computed
        def floor(self) -> int:
            return self.a // 2

        @computed
        def member(self) -> str:
            return self.city.nam  # type: ignore[attr-defined, no-any-return]

        @computed
        def method(self) -> str:
            return self.name.title()

        @computed
        def loop(self) -> int:
            return self.again + 1

        @computed
        def again(self) -> int:
            return self.loop - 1

        @computed
        def value(self) -> int:
            return as_value({})  # type: ignore[arg-type]

    use = "write arithmetic on the columns, or use pyspark's functions, such as F.when instead of if"
    ways = "write & | ~ for and, or, not; write F.when for if"
    assert [line.replace("Computed.", "") for line in problems_of(Computed)] == [
        "no_type: the function has no return annotation, so the column's type is unknown; add the type, as in def "
        "no_type(self) -> int",
        "typo: the body uses 'aa', which is not a column (did you mean 'a'?); the columns are 'a', 'name', "
        "'city', "
        "'no_type', 'typo', 'condition', 'identity', 'text', 'length', 'outside', 'floor', 'member', 'method', "
        "'loop', 'again' and 'value'",
        "condition: the body uses a column as a condition (with if, and, or, not or in), but its value is not known "
        f"yet; {ways}",
        "identity: the body compares with 'is', which does not work on columns; write == None or != None",
        "text: the body converts a column to a string; join strings with +, or use pyspark's F.concat and "
        "F.format_string",
        "length: the body calls len() on `name`; use pyspark's F.length or F.size",
        f"outside: the body fails when it runs on columns: TypeError: must be real number, not SqlExpression; {use}",
        "floor: the body divides with //, which Spark rounds differently; divide with /, or use F.floor(a / b)",
        "member: the body uses `city`.nam, but there is no such member (did you mean 'name'?); the members are 'name'",
        "method: the body uses `name`.title, which has no counterpart in SQL; use pyspark's functions",
        "loop: the computed columns 'loop' and 'again' depend on each other; let one of them use only other columns",
        "again: the computed columns 'again' and 'loop' depend on each other; let one of them use only other columns",
        f"value: the body uses {{}} of type dict, which SQL has no literal for; {use}",
    ]


def test_a_wrong_column_causes_no_further_problems() -> None:
    class Wrong(KafkaTable, topic="t", key=Json(), value=Json()):
        key: Key[Unknown]  # type: ignore[name-defined]  # noqa: F821
        at: Annotated[Col[Unknown], Metadata("timestamp")]  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ResolveError) as raised:
        Wrong.schema()

    assert [p.code for p in raised.value.problems] == ["column-annotation", "column-annotation"]


def test_marks_inside_col_mean_the_same_as_around_it() -> None:
    class Inside(KafkaTable, topic="t", key=Json(), value=Json()):
        a: Col[Annotated[int, KeyField()]]
        b: Annotated[Col[int], KeyField()]
        c: Col[Annotated[datetime, Metadata("timestamp")]]
        d: Col[Annotated[int, KeyField()] | None]

    columns = {c.name: c for c in Inside.definition().columns}

    assert [columns[n].key for n in "abd"] == [True, True, True]
    assert columns["c"].shows == "timestamp"
    assert Inside.definition().problems == ()


def test_annotations_without_brackets_and_strings_are_reported() -> None:
    class Odd(KafkaTable, topic="t", value=Json()):
        a: Annotated[int, KeyField]
        b: Annotated[int, "INT"]

    results = {p.where.column: p.message for p in Odd.definition().problems}

    assert results["a"] == "Annotated holds the class KeyField instead of an instance"
    assert results["b"] == "'INT' in Annotated is neither a mark nor a type"


def test_properties_that_cannot_be_read_are_problems_and_never_shown() -> None:
    arguments: dict[str, Any] = {"properties": {"sasl.password": ["hunter2"], "client.id": "x"}, "group_id": ["g"]}

    class Odd(KafkaTable, topic="t", value=Json(), **arguments):
        a: Col[int]

    definition = Odd.definition()

    assert [p.code for p in definition.problems] == ["client-property-type", "argument-value"]
    assert dict(definition.properties) == {"client.id": "x"}
    assert "hunter2" not in repr(vars(Odd)) + str(definition.problems)


def test_a_body_without_return_is_reported() -> None:
    class Odd(KafkaTable, topic="t", value=Json()):
        a: Col[int]

        @computed
        def b(self) -> int:  # type: ignore[return]
            self.a + 1

    assert [p.message for p in Odd.definition().problems] == ["the body returns nothing"]


def test_a_duplicate_column_is_reported_with_both_lines() -> None:
    class Wrong(KafkaTable, topic="t", value=Json()):
        id: Col[int]  # cause first
        note: Col[str]
        id: Col[str]  # type: ignore[no-redef]  # noqa: PIE794

    (first,) = (i for i, line in enumerate(LINES, 1) if line.endswith("# cause first"))
    (problem,) = Wrong.definition().problems
    assert problem.message == f"it is declared twice in the class, first in line {first}"
    assert problem.where.line == first + 2


def test_names_that_are_not_strings_are_reported() -> None:
    class Wrong(KafkaTable, topic="t", value=Json()):
        a: Col[int] = col(name=3)  # type: ignore[call-overload]
        b: Virtual[int] = virtual(3)  # type: ignore[call-overload]
        c: Col[int] = metadata(None)  # type: ignore[call-overload]

    assert problems_of(Wrong) == [
        "Wrong.a: name= is 3, which is not a string; set name= to a string",
        "Wrong.b: 3 is not the name of metadata; name the metadata with a string, as in virtual('offset')",
        "Wrong.c: None is not the name of metadata; name the metadata with a string, as in virtual('offset')",
    ]


Tree = dict[str, "Tree"]


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


def test_unusual_defaults_and_types_are_reported() -> None:
    class Wrong(KafkaTable, topic="t", value=Json()):
        huge: Col[Decimal] = col(default=Decimal("1e400"))
        size: Col[Size] = col(default="x")  # type: ignore[arg-type]
        fits: Col[Size | None] = col(default=Size.LARGE)
        tree: Col[Tree]

    assert [line.partition(";")[0] for line in problems_of(Wrong)] == [
        "Wrong.huge: the default is not a value of DECIMAL(38, 18) NOT NULL: Decimal('1E+400') is not a number with at "
        "most 20 digits before the point",
        "Wrong.size: the default 'x' is not a value of Size",
        "Wrong.tree: dict[str, 'Tree'] contains itself, and a column type must have a finite depth",
    ]


def test_a_decorator_that_creates_the_class_again_is_reported() -> None:
    @attrs.define
    class Wrong(KafkaTable, topic="t", value=Json()):
        a: Col[int]

    (problem,) = Wrong.definition().problems
    assert problem.message == "a decorator makes the class a second time"


class TestOneMistakeIsOneError:
    """What follows from a mistake is not reported besides it."""

    def codes(self, table: type[KafkaTable]) -> list[tuple[str, str]]:
        results = {p for direction in ("read", "write") for p in problems(table.definition(), direction)}
        return sorted((p.code, p.message) for p in results)

    def test_an_unreadable_type_does_not_cause_a_problem_of_the_watermark(self) -> None:
        class Wrong(KafkaTable, topic="t", value="json", startup="earliest"):
            at: Col[datetime] = col(type="timestampp(3)", watermark="5 seconds")

        ((code, message),) = self.codes(Wrong)
        assert (code, "timestampp" in message.lower()) == ("column-type", True)

    def test_a_misspelt_metadata_key_does_not_cause_a_problem_of_writing(self) -> None:
        class Wrong(KafkaTable, topic="t", value="json", startup="earliest"):
            id: Col[int]
            at: Col[datetime] = metadata("timestmp")  # type: ignore[call-overload]  # the mistake

        assert self.codes(Wrong) == [("metadata-key", "there is no metadata 'timestmp' (did you mean 'timestamp'?)")]

    def test_a_misspelt_format_is_not_a_missing_one(self) -> None:
        class Wrong(KafkaTable, topic="t", value="jsn", startup="earliest"):
            id: Col[int]

        ((code, message),) = self.codes(Wrong)
        assert (code, "there is no format 'jsn'" in message) == ("format-unknown", True)
