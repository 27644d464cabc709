"""Tables whose value format carries changes: keys, primary keys, metadata of the format, names."""

from __future__ import annotations

import pytest

from kdsl.formats import Direction, format_class
from kdsl.resolve import resolve
from tests.resolve.tables import codes, errors, table, warnings

CHANGES = ("debezium-json", "canal-json", "maxwell-json", "ogg-json")
BOTH: tuple[Direction, ...] = ("read", "write")


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("direction", BOTH)
class TestEachFormat:
    def test_a_primary_key_is_allowed(self, name: str, direction: Direction) -> None:
        result = table(options={"format": name}, primary_key=("id",))

        assert codes(result, direction) == []
        assert resolve(result, direction).changelog

    def test_it_is_not_a_key_format(self, name: str, direction: Direction) -> None:
        (result,) = errors(table(options={"key.format": name, "key.fields": "id"}), direction)

        assert result.code == "key-format-changes"
        assert repr(name) in result.message
        assert result.fix == "use a format that only inserts rows, such as json, csv or raw"

    def test_no_column_takes_the_name_of_the_row_kind(self, name: str, direction: Direction) -> None:
        (result,) = errors(table("id INT", "_ROW_kind STRING", options={"format": name}), direction)

        assert result.code == "row-kind"
        assert result.fix.startswith("rename the column, which then shows the field of its new name")

    def test_all_its_metadata_can_be_read_as_its_own_type_but_not_written(
        self, name: str, direction: Direction
    ) -> None:
        columns = [
            f"m{i} {k} METADATA FROM value.{key}" for i, (key, k) in enumerate(format_class(name).metadata.items())
        ]
        plain = table("id INT", *columns, options={"format": name})
        virtual = table("id INT", *(f"{c} VIRTUAL" for c in columns), options={"format": name})

        assert codes(virtual, direction) == []
        assert codes(plain, direction) == ([] if direction == "read" else ["metadata-read-only"] * len(columns))


def test_an_insert_only_table_is_not_a_changelog_and_may_have_a_column_of_that_name() -> None:
    assert codes(table("id INT", "_row_kind STRING")) == []
    assert not resolve(table("id INT"), "read").changelog


@pytest.mark.parametrize("kind", ["STRING", "INT"])
def test_metadata_without_the_prefix_is_unknown_and_reported_with_a_suggestion(kind: str) -> None:
    column = f"m {kind} METADATA FROM source.database"
    (result,) = errors(table("id INT", column, options={"format": "debezium-json"}))

    assert result.code == "metadata-key"
    assert "did you mean 'value.source.database'?" in result.message


def test_metadata_of_another_format_is_refused() -> None:
    result = table("id INT", "m STRING METADATA FROM value.database", options={"format": "ogg-json"})

    assert codes(result) == ["metadata-key"]


def test_metadata_of_a_key_format_is_not_offered() -> None:
    options: dict[str, str | int | float | bool] = {"format": "debezium-json", "key.format": "json", "key.fields": "id"}

    assert codes(table("id INT", "m STRING METADATA FROM key.schema", options=options)) == ["metadata-key"]


@pytest.mark.parametrize(
    ("column", "right"),
    [
        ("TIMESTAMP(3) METADATA FROM value.ingestion-timestamp", True),
        ("DATE METADATA FROM value.ingestion-timestamp", True),
        ("STRING METADATA FROM value.ingestion-timestamp", True),
        ("BIGINT METADATA FROM value.ingestion-timestamp", False),
        ("MAP<STRING, STRING> METADATA FROM value.source.properties", True),
        ("MAP<STRING, INT> METADATA FROM value.source.properties", False),
        ("INT METADATA FROM value.source.table", False),
    ],
)
def test_metadata_of_a_format_is_cast_as_kafkas_is(column: str, right: bool) -> None:
    result = table("id INT", f"m {column} VIRTUAL", options={"format": "debezium-json"})

    assert codes(result) == ([] if right else ["metadata-type"])


def test_a_schema_is_not_written() -> None:
    result = table(options={"format": "debezium-json", "debezium-json.schema-include": True})

    assert codes(result) == []
    assert codes(result, "write") == ["format-read-only"]
    assert warnings(result, "write") == []


def test_the_filters_of_canal_are_checked_where_they_filter() -> None:
    actual = table(
        options={"format": "canal-json", "canal-json.database.include": "[a", "canal-json.table.include": ".*"}
    )
    (result,) = errors(actual)

    assert result.code == "canal-json-include"
    assert "database.include = '[a', which is not a regular expression: unterminated character set" in result.message
    assert codes(actual, "write") == []
