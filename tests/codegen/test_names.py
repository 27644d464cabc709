"""Names for what may be called anything."""

from __future__ import annotations

import pytest

from kdsl.codegen.names import attribute_name, class_name, symbol_name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("amount", "amount"),
        ("userId", "userId"),
        ("user-id", "user_id"),
        ("user.id", "user_id"),
        ("class", "class_"),
        ("None", "None_"),
        ("_x", "x"),
        ("__init__", "init__"),
        ("1st", "column_1st"),
        ("", "column"),
        ("---", "column"),
        ("größe", "größe"),
        ("ﬁ", "fi"),
        ("x²", "x2"),
        ("名前", "名前"),
        ("schema", "schema_"),
        ("read_stream", "read_stream_"),
        ("match", "match"),
    ],
)
def test_attributes(name: str, value: str) -> None:
    assert attribute_name(name, (), of_table=True) == value


def test_colliding_names_get_suffixes() -> None:
    assert attribute_name("a-b", ("a_b", "a_b_2")) == "a_b_3"
    assert attribute_name("class", ("class_",)) == "class_2"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user_behavior", "UserBehavior"),
        ("Orders", "Orders"),
        ("orders.v2-final", "OrdersV2Final"),
        ("2fa", "Table2fa"),
        ("json", "JsonTable"),
        ("any", "AnyTable"),
        ("---", "Table"),
        ("dict", "Dict"),
        ("ValueError", "ValueErrorTable"),
    ],
)
def test_classes(name: str, value: str) -> None:
    assert class_name(name, (), "Table") == value


def test_symbols_of_enumerations_avoid_the_names_of_string_methods() -> None:
    assert [symbol_name(v, ()) for v in ("NEW", "title", "mro", "None", "a-b", "1")] == [
        "NEW", "title_", "mro_", "None_", "a_b", "value_1",
    ]  # fmt: skip
