"""YAML documents: the same tables under Flink's keys, errors with path and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.declare.definition import ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.declare.document import load_definitions, read_tables
from kdsl.errors import ResolveError
from kdsl.options import Spelling
from kdsl.resolve import problems
from kdsl.types import model as t
from tests.problem_texts import without_code

DOCUMENT = """\
tables:
  - name: orders
    comment: Orders as the shop writes them.
    columns:
      - {name: k_id, type: BIGINT NOT NULL, comment: who}
      - {name: amount, type: "DECIMAL(10, 2)"}
      - {name: tags, type: "ROW<a INT, b ARRAY<STRING>>"}
      - {name: placed_at, type: TIMESTAMP_LTZ(3), metadata: timestamp}
      - {name: offset, type: BIGINT, metadata: true, virtual: true}
      - {name: twice, type: "DECIMAL(12, 2)", computed: amount * 2}
    watermark: {column: placed_at, delay: 5 seconds}
    options:
      connector: kafka
      topic: orders;more-orders
      properties.bootstrap.servers: localhost:9092
      properties.enable.idempotence: false
      key.format: csv
      key.csv.field-delimiter: "|"
      key.fields: k_id
      key.fields-prefix: k_
      value.format: json
      value.json.ignore-parse-errors: true
      value.fields-include: EXCEPT_KEY
      scan.max-records-per-trigger: 1000
"""


def table() -> TableDef:
    (tables,) = read_tables(DOCUMENT, file="tables.yaml")
    return tables


class TestDefinition:
    def test_columns(self) -> None:
        amount = t.Decimal(10, 2)
        inner = t.Row((t.Field("a", t.Int()), t.Field("b", t.Array(t.STRING))))

        assert table().columns == (
            ColumnDef("k_id", t.BigInt(nullable=False), comment="who"),
            ColumnDef("amount", amount),
            ColumnDef("tags", inner),
            ColumnDef("placed_at", t.TimestampLtz(3), "metadata", metadata_key="timestamp"),
            ColumnDef("offset", t.BigInt(), "metadata", virtual=True),
            ColumnDef("twice", t.Decimal(12, 2), "computed", expression=Expression("amount * 2")),
        )

    def test_options_and_formats(self) -> None:
        result = table()

        assert result.options.topic == ("orders", "more-orders")
        assert result.options.max_records_per_trigger == 1000
        assert result.options.key_prefix == "k_"
        assert result.key_fields == ("k_id",)
        assert result.key_format is not None
        assert result.key_format.to_strings() == {"field-delimiter": "|"}
        assert result.value_format is not None
        assert result.value_format.to_strings() == {"ignore-parse-errors": "true"}

    def test_properties_are_strings_without_their_prefix(self) -> None:
        assert dict(table().properties) == {"bootstrap.servers": "localhost:9092", "enable.idempotence": "false"}

    def test_the_rest(self) -> None:
        result = table()

        assert result.name == "orders"
        assert result.comment == "Orders as the shop writes them."
        assert result.watermarks == (WatermarkDef("placed_at", "5 seconds"),)
        assert result.spelling is Spelling.YAML
        assert result.problems == ()

    def test_locations_have_lines(self) -> None:
        result = table()

        assert (result.where.file, result.where.line, result.where.path) == ("tables.yaml", 2, "$.tables[0]")
        assert [c.where.line for c in result.columns] == [5, 6, 7, 8, 9, 10]
        assert result.option_locations["key.fields"].line == 19
        assert result.option_locations["key.fields"].path == "$.tables[0].options['key.fields']"

    def test_a_file_may_contain_one_table(self, tmp_path: Path) -> None:
        text = "name: a\ncolumns: [{name: x, type: INT}]\noptions: {connector: kafka, topic: a, format: json}\n"
        path = tmp_path / "one.yaml"
        path.write_text(text, encoding="utf-8")

        (result,) = load_definitions(path)
        assert (result.name, result.where.path, problems(result, "read")) == ("a", "$", [])


def problems_of(text: str) -> list[str]:
    with pytest.raises(ResolveError) as caught:
        read_tables(text, file="t.yaml")
    return [without_code(p) for p in caught.value.problems]


class TestErrors:
    def test_no_yaml(self) -> None:
        assert problems_of("a: [1") == [
            "t.yaml:1: the document is not valid YAML: expected ',' or ']', but got '<stream end>'; correct this line"
        ]

    @pytest.mark.parametrize("text", ["", "3", "[]"])
    def test_no_table(self, text: str) -> None:
        assert problems_of(text)[0].endswith("the document contains no table; write 'tables:' and a list of tables")

    def test_every_mistake_is_reported_with_its_location(self) -> None:
        text = (
            "tables:\n"
            "  - name: a\n"
            "    colums: []\n"
            "    options: {topic: [1]}\n"
            "  - name: 3\n"
            "    columns:\n"
            "      - {name: x, type: INT, virtual: maybe}\n"
            "      - {type: INT}\n"
            "    options: {}\n"
        )
        actual = problems_of(text)

        assert [line.split(":")[1].split(" ")[0] for line in actual] == ["2", "4", "2", "5", "7", "8"]
        assert any("there is no 'colums' (did you mean 'columns'?)" in line for line in actual)
        assert any(
            "$.tables[0].options['topic']: an option is a string, a number, true or false, got a list" in line
            for line in actual
        )
        assert any("$.tables[1].columns[0].virtual: expected true or false, got 'maybe'" in line for line in actual)
        assert any("$.tables[1].columns[1].name: 'name' is missing" in line for line in actual)

    def test_a_duplicate_key(self) -> None:
        text = "name: a\ncolumns: []\noptions:\n  topic: a\n  topic: b\n"

        assert problems_of(text) == [
            "t.yaml:5 $.options['topic']: 'topic' is declared twice, first in line 4; remove one"
        ]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("tables:", "$.tables: expected a list of tables, got nothing"),
            ("tables: {a: 1}", "$.tables: expected a list of tables, got a mapping"),
            ("tables: [a]", "$.tables[0]: expected a mapping of name, columns, options, primary_key"),
            ("name: a\noptions: {}\ncolumns: {a: INT}", "$.columns: expected a list, got a mapping"),
            ("name: a\noptions: {}\ncolumns: [a INT]", "$.columns[0]: expected a mapping of name, type"),
            ("name: a\noptions: {}\ncolumns: []\nprimary_key: ab", "$.primary_key: expected a list, got a string"),
            ("name: a\noptions: {}\ncolumns: []\nwatermark: a", "$.watermark: expected a mapping of column, delay"),
            ("name: a\noptions: []\ncolumns: []", "$.options: expected a mapping of options, got a list"),
            ("name: a\noptions: {}\ncolumns: [{name: b, type: INT, metadata: ''}]", "expected a metadata key or true"),
            ("name: a\ncolumns: []\noptions: {x @ y: [1]}", "t.yaml:3 $.options['x @ y']: an option is a string"),
            ("a: &a [*a]", "t.yaml:1: the document is not valid YAML: an anchor contains itself"),
            ("name: a\n<<: [1]", "t.yaml:2: the document is not valid YAML: '<<' merges a value that is not a mapping"),
            ("name: a\n<<: {? [p, q] : 1}", "t.yaml:2: the document is not valid YAML: a key is not a single value"),
            ("name: !x a", "t.yaml:1: the document is not valid YAML: a value begins with a tag"),
            ("name: a\ncolumns: !x []", "t.yaml:2: the document is not valid YAML: a tag is not supported here"),
            ("name: 2020-13-45", "t.yaml:1: the document is not valid YAML: a value looks like the type 'timestamp'"),
            ("name: !!bool x", "t.yaml:1: the document is not valid YAML: a value looks like the type 'bool'"),
            ("name: !!int ''", "t.yaml:1: the document is not valid YAML: a value looks like the type 'int'"),
            (
                "name: !!timestamp x",
                "t.yaml:1: the document is not valid YAML: a value looks like the type 'timestamp'",
            ),
            ("name: a\n? [b]\n: c", "t.yaml:2: the document is not valid YAML: a key is not a single value"),
            ("name: a\nb: \0", "t.yaml:2: the document is not valid YAML: it contains the character U+0000"),
            ("[" * 3000, "the document is not valid YAML: it is nested too deeply"),
        ],
    )
    def test_another_shape_is_reported_with_its_location(self, text: str, message: str) -> None:
        assert message in problems_of(text)[0]

    def test_two_tables_of_one_name(self) -> None:
        table = "{name: a, columns: [], options: {}}"

        assert problems_of(f"tables:\n- {table}\n- {table}\n")[0].startswith(
            "t.yaml:3 $.tables[1].name: there are two tables"
        )

    @pytest.mark.parametrize(
        "text", ["[hunter2]", "{sasl.password: hunter2}", "*hunter2", "!hunter2", "!hunter2 x", "!!int hunter2"]
    )
    def test_an_option_of_another_shape_shows_no_secret(self, text: str) -> None:
        actual = problems_of(f"name: a\ncolumns: []\noptions:\n  properties.sasl.password: {text}\n  b: []\n")

        assert "t.yaml:4" in actual[0] or "t.yaml:5" in actual[0]
        assert "hunter2" not in "".join(actual)

    @pytest.mark.parametrize(("raw", "line"), [(b"name: a\nb: \xff\n", 2), ("name: a".encode("utf-16"), 1)])
    def test_a_file_that_is_not_utf_8(self, tmp_path: Path, raw: bytes, line: int) -> None:
        path = tmp_path / "tables.yaml"
        path.write_bytes(raw)
        with pytest.raises(ResolveError) as caught:
            load_definitions(path)

        (problem,) = caught.value.problems
        assert problem.message == "the document is not UTF-8: it contains the byte 0xff"
        assert problem.where.line == line

    def test_another_key_next_to_tables(self) -> None:
        assert "is not allowed in a document of tables" in problems_of("tables: []\nsource: 1\n")[0]


def codes(**options: str) -> list[str]:
    settings = {
        "connector": "kafka",
        "topic": "a",
        "format": "json",
        **{k.replace("__", "."): v for k, v in options.items()},
    }
    lines = "".join(f"  {key}: {value!r}\n" for key, value in settings.items())
    (tables,) = read_tables(f"name: a\ncolumns: [{{name: x, type: INT}}]\noptions:\n{lines}")
    return [p.code for p in problems(tables, "read")]


class TestOptions:
    def test_valid_documents(self) -> None:
        assert codes() == []

    @pytest.mark.parametrize("written", ["010", "1.10", "1:30", "0x10", "on", "2020-01-01", ".nan", "'True'"])
    def test_an_option_is_the_string_as_written(self, written: str) -> None:
        text = f"name: a\ncolumns: []\noptions:\n  connector: kafka\n  properties.group.id: {written}\n"
        (tables,) = read_tables(text)

        assert dict(tables.properties) == {"group.id": written.strip("'")}

    def test_tables_share_options_through_a_merge_in_which_their_own_win(self) -> None:
        text = (
            "tables:\n- name: a\n  columns: []\n  options: &common {connector: kafka, topic: a, format: json}\n"
            "- name: b\n  columns: []\n  options: {<<: *common, topic: b}\n"
        )
        _, tables = read_tables(text)

        assert tables.options.topic == ("b",)
        assert tables.value_format is not None
        assert tables.problems == ()

    def test_an_unknown_connector(self) -> None:
        assert codes(connector="kafkaa") == ["connector"]

    def test_an_unknown_format_is_reported_once(self) -> None:
        assert codes(format="jsn") == ["format-unknown"]

    def test_two_formats_for_the_value(self) -> None:
        assert codes(value__format="csv") == ["format-twice"]
        assert codes(value__format="json") == []

    def test_options_of_a_format_are_in_its_section(self) -> None:
        assert codes(**{"json.ignore-parse-errors": "true"}) == []
        assert codes(**{"value.json.ignore-parse-errors": "true"}) == ["option-unknown"]
        assert codes(**{"csv.ignore-parse-errors": "true"}) == ["option-unknown"]

    def test_unknown_options_are_reported_with_a_suggestion(self) -> None:
        (tables,) = read_tables(
            "name: a\ncolumns: [{name: x, type: INT}]\noptions: {connector: kafka, topc: a, format: json}"
        )
        messages = [p.message for p in problems(tables, "read")]

        assert messages[0] == "the connector 'kafka' has no option 'topc' (did you mean 'topic'?)"

    def test_a_wrong_type_is_shown_with_the_position_in_the_type(self) -> None:
        (tables,) = read_tables(
            "name: a\ncolumns: [{name: x, type: BIGNT}]\noptions: {connector: kafka, topic: a, format: json}"
        )
        (problem,) = problems(tables, "read")

        assert problem.code == "type-syntax"
        assert "(did you mean 'BIGINT'?)" in problem.message
        assert problem.where.path == "$.columns[0].type"
