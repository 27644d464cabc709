from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdsl.changelog import Changelog, ChangelogError
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND
from kdsl.own_columns import KIND, UNAVAILABLE
from kdsl.run.dataframes.latest import last_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = f"{ROW_KIND} string, id bigint, name string"


def changes(spark: SparkSession, *rows: tuple[object, ...], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(list(rows), schema).coalesce(1)


def sort_rows(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in df.collect())


def test_the_last_change_of_each_key_is_an_upsert_or_a_delete(spark: SparkSession) -> None:
    df = changes(
        spark, ("+I", 1, "a"), ("+I", 2, "b"), ("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, "b"), ("+I", 3, "d"),
        ("-D", 3, "d"), ("+I", 3, "e"),
    )  # fmt: skip

    assert sort_rows(Changelog(df, keys=["id"]).dedupe()) == [("+U", 1, "c"), ("+U", 3, "e"), ("-D", 2, "b")]


def test_an_update_to_another_key_deletes_the_old_one(spark: SparkSession) -> None:
    df = changes(spark, ("+I", 1, "a"), ("-U", 1, "a"), ("+U", 2, "a"))

    assert sort_rows(Changelog(df, keys="id").dedupe()) == [("+U", 2, "a"), ("-D", 1, "a")]


def test_rows_without_a_kind_are_what_their_key_has_now(spark: SparkSession) -> None:
    df = changes(spark, (1, "a"), (2, "b"), (1, "c"), schema="id bigint, name string")

    assert sort_rows(Changelog(df, keys=["id"]).dedupe()) == [("+U", 1, "c"), ("+U", 2, "b")]


def test_columns_may_define_which_change_is_later(spark: SparkSession) -> None:
    df = changes(spark, ("+U", 1, "z"), ("+U", 1, "b"), ("+U", 2, "c"))

    assert sort_rows(Changelog(df, keys=["id"], order_by=["name"]).dedupe()) == [("+U", 1, "z"), ("+U", 2, "c")]


def test_the_order_of_partitions_is_that_of_changes(spark: SparkSession) -> None:
    df = spark.range(0, 4000, 1, numPartitions=8).selectExpr("'+U' AS _row_kind", "id % 7 AS id", "string(id) AS name")

    expected = [("+U", key, str(max(n for n in range(4000) if n % 7 == key))) for key in range(7)]
    assert sort_rows(Changelog(df, keys=["id"]).dedupe()) == expected
    last = last_changes(df.persist(), ["id"], in_one_task=True)
    try:
        assert sort_rows(last) == expected
        assert last.rdd.getNumPartitions() == 1
    finally:
        df.unpersist()


def test_columns_of_any_type_and_name_go_along(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT '+I' AS _row_kind, 1 AS `a key`, 'x' AS `b.c`, map('k', array(1, 2)) AS m, named_struct('n', 1) AS s"
    )
    (row,) = Changelog(df, keys=["a key"]).dedupe().collect()

    assert row.asDict(recursive=True) == {
        ROW_KIND: "+U", "a key": 1, "b.c": "x", "m": {"k": [1, 2]}, "s": {"n": 1}
    }  # fmt: skip


def test_keys_of_several_columns(spark: SparkSession) -> None:
    df = changes(spark, ("+I", 1, "a"), ("+I", 1, "b"), ("-D", 1, "a"))

    assert sort_rows(Changelog(df, keys=["name", "id"]).dedupe()) == [("+U", 1, "b"), ("-D", 1, "a")]


def test_a_number_that_is_computed_from_a_value_which_changes_lack_is_that_of_the_batch(spark: SparkSession) -> None:
    """Its type has a fixed length, but not that of the string from which it is computed."""
    schema = f"`{KIND}` string, id bigint, text string, size int, `{UNAVAILABLE}` array<string>"
    rows = [("+U", 1, "abc", 3, []), ("+U", 1, None, None, ["text", "size"]), ("+U", 2, None, None, ["text", "size"])]

    last = last_changes(spark.createDataFrame(rows, schema).coalesce(1), ["id"])

    assert sort_rows(last.drop(KIND)) == [(1, "abc", 3, []), (2, None, None, ["text", "size"])]


def test_a_null_key_and_an_invalid_kind_fail_the_job(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="the key column 'id' is NULL in a row"):
        Changelog(changes(spark, ("+I", None, "a")), keys=["id"]).dedupe().collect()
    with pytest.raises(Exception, match=f"{ROW_KIND} has 'I', which is not one of"):
        Changelog(changes(spark, ("I", 1, "a")), keys=["id"]).dedupe().collect()


def test_mismatches_are_reported(spark: SparkSession) -> None:
    df = changes(spark, ("+I", 1, "a"))
    with pytest.raises(KdslError, match=r"the key of the rows is unknown; pass the table, or keys="):
        Changelog(df)
    with pytest.raises(ChangelogError, match=r"no column 'idd' \(did you mean 'id'\?\)"):
        Changelog(df, keys=["idd"])
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ChangelogError, match="the last change of a key is known only within a batch"):
        Changelog(stream, keys=["value"]).dedupe()


def test_many_columns_that_a_change_lacks_keep_their_last_values(spark: SparkSession) -> None:
    names = [f"c{i}" for i in range(40)]
    columns = ", ".join(f"{name} string" for name in names)
    schema = f"`{KIND}` string, id int, {columns}, `{UNAVAILABLE}` array<string>"
    rows = [("+U", 1, *names, []), ("+U", 1, *([None] * 39), "new", names[:39])]
    changes = spark.createDataFrame(rows, schema).coalesce(1)

    (last,) = last_changes(changes, ["id"]).collect()

    assert [last[name] for name in names] == [*names[:39], "new"]
    assert last[UNAVAILABLE] == []
