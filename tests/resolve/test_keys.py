"""The key/value split (RULES KEY-1 to KEY-12), and the prefix of value fields."""

from __future__ import annotations

import pytest

from kdsl.declare.config import Scalar
from kdsl.resolve import Part, resolve
from tests.resolve.tables import codes, errors, table, warnings

KEYED: dict[str, Scalar] = {"key.format": "json", "key.fields": "id"}
PREFIXED: dict[str, Scalar] = {
    "key.format": "json",
    "key.fields": "k_id;k_name",
    "key.fields-prefix": "k_",
    "value.fields-include": "EXCEPT_KEY",
}


def names(part: Part | None) -> tuple[str, ...]:
    assert part is not None
    return part.row.names


class TestSplit:
    def test_without_a_key_everything_is_value(self) -> None:
        resolved = resolve(table(), "read")

        assert resolved.key is None
        assert names(resolved.value) == ("id", "name", "amount")

    def test_all_keeps_key_columns_in_the_value(self) -> None:
        resolved = resolve(table(options=KEYED), "read")

        assert names(resolved.key) == ("id",)
        assert names(resolved.value) == ("id", "name", "amount")

    def test_except_key_takes_them_out(self) -> None:
        resolved = resolve(table(options={**KEYED, "value.fields-include": "except_key"}), "read")

        assert names(resolved.value) == ("name", "amount")

    def test_the_key_has_the_order_of_key_fields_and_the_value_that_of_the_table(self) -> None:
        columns = ("id INT", "name STRING", "age INT", "address STRING")
        resolved = resolve(table(*columns, options={"key.format": "json", "key.fields": "address; name"}), "read")

        assert names(resolved.key) == ("address", "name")
        assert names(resolved.value) == ("id", "name", "age", "address")

    def test_the_prefix_is_removed_on_the_wire(self) -> None:
        resolved = resolve(table("k_id INT", "k_name STRING", "id INT", options=PREFIXED), "read")

        assert names(resolved.key) == ("id", "name")
        assert resolved.key is not None
        assert resolved.key.columns == ("k_id", "k_name")
        assert names(resolved.value) == ("id",)

    def test_every_column_may_be_a_key(self) -> None:
        resolved = resolve(table("id INT", options={**KEYED, "value.fields-include": "EXCEPT_KEY"}), "write")

        assert names(resolved.value) == ()

    def test_the_value_prefix_is_removed_on_the_wire(self) -> None:
        options: dict[str, Scalar] = {
            "key.format": "json",
            "key.fields": "key_id",
            "key.fields-prefix": "key_",
            "value.fields-prefix": "val_",
            "value.fields-include": "EXCEPT_KEY",
        }
        resolved = resolve(table("key_id INT NOT NULL", "val_name VARCHAR(200)", options=options), "read")

        assert names(resolved.key) == ("id",)
        assert names(resolved.value) == ("name",)

    def test_metadata_and_computed_columns_are_in_neither(self) -> None:
        resolved = resolve(
            table("id INT", "ts TIMESTAMP_LTZ(3) METADATA FROM timestamp", "twice INT AS id * 2"), "read"
        )

        assert names(resolved.value) == ("id",)


class TestKeyFormatAndFields:
    def test_key_fields_need_a_key_format(self) -> None:
        (problem,) = errors(table(options={"key.fields": "id"}))

        assert problem.code == "key-format"
        assert problem.message == "'id' is in the message key, but there is no key format"
        assert problem.fix == "add one, such as 'key.format': json"

    @pytest.mark.parametrize("settings", [{}, {"key.fields": ""}])
    def test_a_key_format_needs_key_fields(self, settings: dict[str, Scalar]) -> None:
        assert codes(table(options={"key.format": "json", **settings})) == ["key-fields"]


class TestKeyFieldsExist:
    def test_an_unknown_field_is_reported_with_a_suggestion(self) -> None:
        (problem,) = errors(table(options={"key.format": "json", "key.fields": "nam"}))

        assert problem.message == "the key field 'nam' is not a column of the table (did you mean 'name'?)"
        assert problem.fix == "name physical columns; there are 'id', 'name' and 'amount'"

    def test_a_comma_does_not_separate(self) -> None:
        assert codes(table(options={"key.format": "json", "key.fields": "id,name"})) == ["key-field"]

    @pytest.mark.parametrize("text", ["ts TIMESTAMP_LTZ(3) METADATA FROM timestamp", "ts INT AS 1"])
    def test_only_physical_columns_are_keys(self, text: str) -> None:
        assert codes(table("id INT", text, options={"key.format": "json", "key.fields": "ts"})) == ["key-field"]

    def test_a_field_is_named_once(self) -> None:
        assert codes(table(options={"key.format": "json", "key.fields": "id;id"})) == ["key-field-repeated"]


class TestPrefixes:
    def test_a_valid_prefix_is_accepted(self) -> None:
        assert codes(table("k_id INT", "k_name STRING", "id INT", options=PREFIXED)) == []

    def test_a_key_column_without_the_prefix(self) -> None:
        definition = table("k_id INT", "name STRING", options={**PREFIXED, "key.fields": "k_id;name"})
        (problem,) = errors(definition)

        assert problem.code == "key-prefix"
        assert problem.where.column == "name"
        assert problem.fix == "rename it to 'k_name', also in 'key.fields'"

    def test_a_prefix_needs_except_key(self) -> None:
        definition = table("k_id INT", "k_name STRING", options={**PREFIXED, "value.fields-include": "ALL"})
        (problem,) = errors(definition)

        assert problem.code == "key-prefix-all"
        assert "'key.fields-prefix': 'k_' and 'value.fields-include': 'ALL' exclude each other" in problem.message

    def test_both_problems_of_a_prefix_are_reported(self) -> None:
        options: dict[str, Scalar] = {"key.format": "json", "key.fields": "nope", "key.fields-prefix": "k_"}

        assert codes(table(options=options)) == ["key-field", "key-prefix-all"]

    def test_a_prefix_without_a_key_only_causes_a_warning(self) -> None:
        options: dict[str, Scalar] = {"key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"}

        assert codes(table(options=options)) == []
        assert warnings(table(options=options)) == ["key-option-unused", "key-option-unused"]

    @pytest.mark.parametrize(("key", "value"), [("k_", "k_v_"), ("key_val_", "key_"), ("a_", "a_")])
    def test_neither_prefix_begins_with_the_other(self, key: str, value: str) -> None:
        options: dict[str, Scalar] = {
            "key.format": "json",
            "key.fields": f"{key}id",
            "key.fields-prefix": key,
            "value.fields-prefix": value,
            "value.fields-include": "EXCEPT_KEY",
        }

        assert codes(table(f"{key}id INT", f"{value}name STRING", options=options)) == ["prefix-overlap"]

    def test_a_value_column_without_its_prefix(self) -> None:
        (problem,) = errors(table("v_id INT", "name STRING", options={"value.fields-prefix": "v_"}))

        assert problem.code == "value-prefix"
        assert problem.fix == "rename it to 'v_name'"

    def test_a_name_is_more_than_its_prefix(self) -> None:
        definition = table("k_ INT", "name STRING", options={**PREFIXED, "key.fields": "k_"})

        assert codes(definition) == ["key-prefix"]
