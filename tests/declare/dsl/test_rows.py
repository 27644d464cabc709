"""Rows of table classes: typed values, and their way to a DataFrame and back."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import cattrs
import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import (
    Col,
    Float32,
    Header,
    Headers,
    Int8,
    KafkaTable,
    Key,
    ResolveError,
    TimestampNtz,
    Virtual,
    as_value,
    col,
    computed,
    metadata,
    virtual,
)
from kdsl.errors import RowError


class Orders(KafkaTable, topic="orders"):
    user: Key[int]
    amount: Col[Decimal]
    quantity: Col[int] = col(default=1)
    tags: Col[list[str]] = col(default=[])
    at: Col[datetime] = metadata("timestamp")
    offset: Virtual[int] = virtual("offset")

    @computed
    def total(self) -> Decimal:
        return self.amount * self.quantity

    def describe(self) -> str:
        """A method of rows."""
        return f"{self.user}: {self.total}"


AT = datetime(2025, 1, 1, tzinfo=UTC)
ROW = Orders(user=1, amount=Decimal("2.5"), at=AT)


def test_rows_are_values() -> None:
    assert [ROW.user, ROW.amount, ROW.quantity, ROW.tags, ROW.at] == [1, Decimal("2.5"), 1, [], AT]
    assert ROW.total == Decimal("2.5")
    same, other = ROW.evolve(quantity=1), ROW.evolve(user=2)
    assert same == ROW
    assert other != ROW
    assert repr(ROW) == (
        "Orders(user=1, amount=Decimal('2.5'), quantity=1, tags=[], at=datetime.datetime(2025, 1, 1, 0, 0, "
        "tzinfo=datetime.timezone.utc))"
    )
    assert ROW.describe() == "1: 2.5"


def test_rows_are_attrs_classes() -> None:
    fields = attrs.fields(Orders)
    row: Any = ROW

    assert attrs.has(Orders)
    assert [f.name for f in fields] == ["user", "amount", "quantity", "tags", "at"]
    assert [f.type for f in fields] == [int, Decimal, int, list[str], datetime]
    assert attrs.evolve(row, quantity=4).total == Decimal(10)
    assert ROW.evolve(quantity=4) == attrs.evolve(row, quantity=4)
    assert attrs.asdict(ROW) == {"user": 1, "amount": Decimal("2.5"), "quantity": 1, "tags": [], "at": AT}


def test_rows_are_structured_by_cattrs() -> None:
    converter = cattrs.Converter()
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))
    converter.register_structure_hook(datetime, lambda value, _: datetime.fromisoformat(value))

    restored = converter.structure({"user": "1", "amount": "2.5", "at": "2025-01-01T00:00:00+00:00"}, Orders)

    assert restored == ROW


def test_rows_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ROW.amount = Decimal(1)  # type: ignore[arg-type]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ROW.offset = 1  # type: ignore[assignment]


def test_rows_can_be_pickled_and_hashed() -> None:
    class Small(KafkaTable):
        a: Col[int]

    assert pickle.loads(pickle.dumps(ROW)) == ROW
    assert len({Small(a=1), Small(a=1), Small(a=2)}) == 2


def test_a_default_is_not_shared() -> None:
    ROW.tags.append("x")
    try:
        assert Orders(user=1, amount=Decimal("2.5"), at=AT).tags == []
    finally:
        ROW.tags.clear()


def test_what_kafka_fills_in_is_not_on_new_rows() -> None:
    with pytest.raises(AttributeError) as error:
        _ = ROW.offset

    assert str(error.value) == (
        "Orders.offset is filled in by Kafka, so only rows that were read with it have it; Orders.collect(df) returns "
        "such rows if df has the column"
    )
    assert not hasattr(ROW, "offset")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"user": 1, "at": AT}, "Orders(...): amount= is missing"),
        ({"at": AT}, "Orders(...): user= and amount= are missing"),
        (
            {"user": 1, "amont": 1, "at": AT},
            "Orders(...): there is no column amont= (did you mean 'amount'?); the columns are 'user', 'amount', "
            "'quantity', 'tags' and 'at'; amount= is missing",
        ),
        (
            {"user": 1, "amount": Decimal(1), "at": AT, "offset": 3},
            "Orders(...): offset= is filled in by Kafka, so the constructor does not take it",
        ),
        (
            {"user": 1, "amount": Decimal(1), "at": AT, "total": 3},
            "Orders(...): total= is computed from other columns, so the constructor does not take it",
        ),
    ],
)
def test_wrong_arguments_are_reported_all_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        Orders(**settings)

    assert str(error.value) == message


def test_a_copy_with_wrong_arguments_is_reported() -> None:
    with pytest.raises(TypeError, match=r"Orders\(...\): there is no column amont= \(did you mean 'amount'\?\)"):
        ROW.evolve(amont=1)


def test_rows_of_an_inherited_table_are_of_their_own_class() -> None:
    class More(Orders):
        remark: Col[str] = col(default="none")

    more = More(user=1, amount=Decimal(1), at=AT)

    assert [f.name for f in attrs.fields(More)] == ["user", "amount", "quantity", "tags", "at", "remark"]
    assert [f.name for f in attrs.fields(Orders)] == ["user", "amount", "quantity", "tags", "at"]
    assert (more.remark, isinstance(more, Orders), more == Orders(user=1, amount=Decimal(1), at=AT)) == (
        "none",
        True,
        False,
    )


# --- to a DataFrame and back ----------------------------------------------------------------------------------------


class Channel(Enum):
    WEB = "web"


class Level(IntEnum):
    HIGH = 3


@attrs.frozen
class Address:
    street: str
    _city: str | None


@dataclasses.dataclass
class Point:
    x: float
    y: Float32


class Pair(NamedTuple):
    a: int
    points: list[Point]


class Loose(TypedDict):
    a: int
    b: NotRequired[str]


class Everything(KafkaTable):
    whole: Col[int]
    tiny: Col[Int8]
    real: Col[float]
    single: Col[Float32]
    text: Col[str]
    raw: Col[bytes]
    flag: Col[bool]
    exact: Col[Decimal]
    price: Col[Decimal] = col(type="decimal(10,2)")
    day: Col[date]
    at: Col[datetime]
    local: Col[TimestampNtz]
    maybe: Col[list[int | None]]
    several: Col[tuple[str, ...]]
    counts: Col[dict[str, int]]
    bag: Col[dict[str, int]] = col(type="MULTISET<STRING>")
    address: Col[Address]
    point: Col[Point | None]
    pair: Col[Pair]
    loose: Col[Loose]
    channel: Col[Channel]
    level: Col[Level | None]
    choice: Col[Literal["a", "b"]]
    headers: Col[Headers] = metadata("headers")
    list_of_headers: Col[list[Header]] = metadata("header-list")
    by_day: Col[dict[date, list[Address | None]]]
    odd: Col[str | None] = col(default=None, name="odd `na.me`")
    offset: Virtual[int] = virtual("offset")
    partition: Virtual[int] = virtual("partition")

    @computed
    def twice(self) -> int:
        return self.whole * 2

    @computed
    def loud(self) -> str:
        return as_value(F.upper(self.text))


FULL = Everything(
    whole=-(2**63),
    tiny=-128,
    real=1.5,
    single=0.5,
    text="grüß 'dich'",
    raw=b"\x00\xff",
    flag=True,
    exact=Decimal("1.123456789012345678"),
    price=Decimal("2.5"),
    day=date(1969, 12, 31),
    at=datetime(2025, 3, 30, 1, 30, 0, 123456, tzinfo=UTC),
    local=datetime(2025, 3, 30, 2, 30),
    maybe=[1, None],
    several=("a", "b"),
    counts={"k": 1},
    bag={"x": 2},
    address=Address("Main Street", None),
    point=None,
    pair=Pair(1, [Point(1.0, 0.5)]),
    loose={"a": 1, "b": "x"},
    channel=Channel.WEB,
    level=Level.HIGH,
    choice="b",
    headers={"h": b"v", "none": None},
    list_of_headers=[Header("h", b"1"), Header("h", None)],
    by_day={date(2025, 1, 1): [None, Address("a", "b")]},
)


@pytest.fixture
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    """The full row as a DataFrame, in a session of another time zone."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield Everything.rows([FULL, FULL.evolve(whole=1, point=Point(2.0, 1.0))])
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_rows_survive_a_round_trip(frame: DataFrame) -> None:
    back = Everything.collect(frame)

    assert back == [FULL, FULL.evolve(whole=1, point=Point(2.0, 1.0))]
    assert back[0].at.tzinfo is UTC
    assert (type(back[0].several), type(back[0].pair), back[0].level) == (tuple, Pair, Level.HIGH)


def test_the_schema_is_that_of_the_columns_that_can_be_written(frame: DataFrame) -> None:
    from kdsl.types import model as t
    from kdsl.types.spark import spark_schema

    written = [c for c in Everything.definition().columns if c.role != "computed" and not c.virtual]
    expected = spark_schema(t.Row(tuple(t.Field(c.name, c.type, c.comment) for c in written)))

    assert frame.schema == expected


def test_rows_that_were_read_have_what_kafka_and_spark_fill_in(frame: DataFrame) -> None:
    expressions = {c.name: c.expression for c in Everything.definition().columns if c.expression}
    loud = expressions["loud"].column
    assert loud is not None
    read = frame.where("whole = 1").withColumns(
        {"offset": F.lit(42).cast("long"), "twice": F.lit(7).cast("long"), "loud": loud()}
    )

    (row,) = Everything.collect(read)

    assert (row.offset, row.twice, row.loud) == (42, 7, "GRÜSS 'DICH'")
    with pytest.raises(AttributeError, match=r"Everything.partition is filled in by Kafka"):
        _ = row.partition
    assert row.evolve(whole=2).twice == 4


def test_columns_that_have_a_default_may_be_missing(frame: DataFrame) -> None:
    (row, _) = Everything.collect(frame.drop("odd `na.me`"))

    assert row.odd is None


def test_no_rows_make_an_empty_frame(spark: SparkSession) -> None:
    frame = Orders.rows([])

    assert frame.columns == ["user", "amount", "quantity", "tags", "at"]
    assert Orders.collect(frame) == []


def test_a_dataframe_with_other_columns_is_refused_with_all_differences(frame: DataFrame) -> None:
    wrong = (
        frame.drop("whole").withColumn("surplus", F.lit(1)).withColumn("more", F.lit(1)).withColumn("tiny", F.lit(1))
    )

    with pytest.raises(RowError) as error:
        Everything.collect(wrong)
    with pytest.raises(RowError, match="some columns have the same name"):
        Everything.collect(frame.select("*", "whole"))

    assert str(error.value) == (
        "Everything.collect(...): 'surplus' and 'more' are not columns of Everything; remove them with "
        "df.drop('surplus', 'more'); there is no column 'whole'; 'tiny' is int, not tinyint"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"whole": None}, "column 'whole' (BIGINT NOT NULL): it is None, but the column may not be NULL"),
        ({"whole": "1"}, "column 'whole' (BIGINT NOT NULL): '1' is not an int"),
        ({"whole": True}, "column 'whole' (BIGINT NOT NULL): True is not an int"),
        ({"whole": 2**63}, f"column 'whole' (BIGINT NOT NULL): {2**63} is not between {-(2**63)} and {2**63 - 1}"),
        ({"tiny": 128}, "column 'tiny' (TINYINT NOT NULL): 128 is not between -128 and 127"),
        ({"real": "x"}, "column 'real' (DOUBLE NOT NULL): 'x' is not a float"),
        ({"text": b"x"}, "column 'text' (STRING NOT NULL): b'x' is not a str"),
        ({"raw": "x"}, "column 'raw' (BYTES NOT NULL): 'x' is not bytes"),
        ({"flag": 1}, "column 'flag' (BOOLEAN NOT NULL): 1 is not a bool"),
        ({"day": AT}, f"column 'day' (DATE NOT NULL): {AT!r} is not a date"),
        ({"exact": 1.5}, "column 'exact' (DECIMAL(38, 18) NOT NULL): 1.5 is not a Decimal"),
        (
            {"price": Decimal("1.234")},
            "column 'price' (DECIMAL(10, 2) NOT NULL): Decimal('1.234') is not a number with at most 2 decimal places",
        ),
        (
            {"price": Decimal(10**8)},
            "column 'price' (DECIMAL(10, 2) NOT NULL): Decimal('100000000') is not a number with at most 8 digits "
            "before the point",
        ),
        (
            {"price": Decimal("nan")},
            "column 'price' (DECIMAL(10, 2) NOT NULL): Decimal('NaN') is not a finite number",
        ),
        (
            {"at": datetime(2025, 1, 1)},
            "column 'at' (TIMESTAMP_LTZ(6) NOT NULL): datetime.datetime(2025, 1, 1, 0, 0) is not a datetime with a "
            "zone, as tzinfo=UTC, because it is an instant",
        ),
        (
            {"local": AT},
            f"column 'local' (TIMESTAMP(6) NOT NULL): {AT!r} is not a datetime without a zone, because TIMESTAMP is a "
            "wall-clock time",
        ),
        (
            {"maybe": "ab"},
            "column 'maybe' (ARRAY<BIGINT> NOT NULL): 'ab' is not a list",
        ),
        (
            {"counts": {"a": None}},
            "column 'counts' (MAP<STRING NOT NULL, BIGINT NOT NULL> NOT NULL): at ['a']: it is None, but the column "
            "may not be NULL",
        ),
        (
            {"pair": Pair(1, [Point(1.0, "y")])},  # type: ignore[arg-type]
            "column 'pair' (ROW<`a` BIGINT NOT NULL, `points` ARRAY<ROW<`x` DOUBLE NOT NULL, `y` FLOAT NOT NULL> NOT "
            "NULL> NOT NULL> NOT NULL): at .points[0].y: 'y' is not a float",
        ),
        (
            {"address": 5},
            "column 'address' (ROW<`street` STRING NOT NULL, `_city` STRING> NOT NULL): 5 is not an object with the "
            "member street",
        ),
    ],
    ids=str,
)
def test_values_of_other_types_are_refused_with_row_and_column(
    spark: SparkSession, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(RowError) as error:
        Everything.rows([FULL, FULL.evolve(**change)])

    assert str(error.value) == f"Everything.rows(...): row 1, {message}"


def test_an_instant_of_any_zone_is_the_same_instant(spark: SparkSession) -> None:
    there = AT.astimezone(timezone(timedelta(hours=-5)))

    (row,) = Orders.collect(Orders.rows([ROW.evolve(at=there)]))

    assert (row.at, row.at.tzinfo) == (AT, UTC)


def test_other_objects_are_not_rows(spark: SparkSession) -> None:
    with pytest.raises(RowError, match=r"Everything.rows\(...\): row 0 is Orders\(user=1.*, not a row of Everything"):
        Everything.rows([ROW])  # type: ignore[list-item]


class Timed(KafkaTable):
    at: Col[time | None]


def test_times_of_day_need_sparks_switch(spark: SparkSession) -> None:
    rows = [Timed(at=time(1, 2, 3, 456789)), Timed(at=None)]
    spark.conf.unset("spark.sql.timeType.enabled")  # ingestions set it
    with pytest.raises(RowError) as error:
        Timed.rows(rows)

    spark.conf.set("spark.sql.timeType.enabled", "true")
    back = Timed.collect(Timed.rows(rows))
    with pytest.raises(RowError, match="is not a time without a zone"):
        Timed.rows([Timed(at=time(1, tzinfo=UTC))])
    spark.conf.unset("spark.sql.timeType.enabled")

    assert back == rows
    assert str(error.value) == (
        "Timed.rows(...): 'at' is TIME, which is disabled in this Spark session; enable it with "
        "spark.conf.set('spark.sql.timeType.enabled', 'true'), or, if the session does not allow that, add the line\n"
        "    spark.sql.timeType.enabled true\nto the Spark configuration with which the session, its cluster or its "
        "Connect server is started"
    )


class Broken(KafkaTable):
    a: Col[complex]


@pytest.mark.parametrize("use", [lambda: Broken.rows([]), lambda: Broken.collect(None)])  # type: ignore[arg-type]
def test_a_table_with_problems_reports_them_instead(use: Callable[[], Any]) -> None:
    with pytest.raises(ResolveError) as error:
        use()

    assert [p.message for p in error.value.problems] == ["complex is not a column type"]
