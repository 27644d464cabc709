"""Every CREATE TABLE of the product's sources, as it is printed there: it is a table, or its error says why not.

In the folder data each file holds one example. The pages print some of them in one line, in which a comment swallows
what follows; they have their lines back here, except one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.ddl.script_reader import parse_script
from kdsl.ddl.tables import DeclaredTable, declare_tables
from kdsl.errors import Problem
from kdsl.formats import Direction
from kdsl.resolve import problems
from kdsl.resolve.transport import transport_of
from tests.problem_texts import without_code

DATA = Path(__file__).parent / "data"
# Words in the place of an address, a file or a name: the statement is right, and cannot run as it stands.
PLACEHOLDERS = {"bootstrap-servers", "tls-store", "decrypt-fields"}


def script(name: str) -> tuple[list[DeclaredTable], list[Problem]]:
    read = parse_script((DATA / f"{name}.sql").read_text(encoding="utf-8"), file=f"{name}.sql")
    tables, wrong = declare_tables(read)
    return tables, [*read.problems, *wrong]


def codes(table: DeclaredTable, direction: Direction) -> list[str]:
    actual = problems(table.definition(), direction)
    return [p.code for p in actual if p.severity == "error" and p.code not in PLACEHOLDERS]


@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("000-syntax", "KafkaTable", ""),
        ("000-example-1", "kafka_source", "kafka_sink"),
        ("000-example-5", "kafka_source", ""),
        ("001-metadata", "kafkaSource", "kafkaSink"),
        ("001-example-json", "kafkaSource", "kafkaSink"),
        ("001-sasl-ssl", "ordersSource", ""),
        ("001-ssl", "ordersSource", ""),
        ("004-example-1", "upsertKafkaSource", "upsertKafkaSource"),
        ("004-example-2", "orders", "upsertKafkaSink"),
    ],
)
def test_an_example_is_a_table(name: str, read: str, written: str) -> None:
    tables, wrong = script(name)
    by_name = {table.name: table for table in tables}

    assert wrong == []
    assert codes(by_name[read], "read") == []
    assert written == "" or codes(by_name[written], "write") == []


@pytest.mark.parametrize("name", ["001-kerberos-ssl", "001-kerberos-plaintext", "004-example-3"])
def test_kerberos_chooses_the_transport_that_has_it(name: str) -> None:
    tables, wrong = script(name)

    assert wrong == []
    assert transport_of(tables[0].definition()) == "jvm"
    assert "sasl-gssapi" not in codes(tables[0], "read")


@pytest.mark.parametrize("name", ["001-sasl-ssl", "001-ssl", "004-example-1", "004-example-3"])
def test_a_print_table_serves_scripts(name: str) -> None:
    tables, _ = script(name)
    connector = tables[1].connector

    assert connector is not None
    assert (connector.name, connector.use) == ("print", "script")
    assert tables[1].problems == ()


@pytest.mark.parametrize("name", ["000-example-2", "000-example-4"])
def test_a_copy_of_a_table_is_not_declared(name: str) -> None:
    tables, wrong = script(name)

    assert wrong == []
    assert [table.name for table in tables] == ["kafkaTable"]


def test_a_table_without_a_with_clause_names_what_it_lacks() -> None:
    tables, wrong = script("000-initial-schemas")

    assert wrong == []
    assert [(t.statement.name.parts, codes(t, "read")) for t in tables] == [
        (("db1", "t1"), ["connector", "topic-missing", "value-format"]),
        (("db1", "t2"), ["connector", "topic-missing", "value-format"]),
    ]


def test_the_primary_key_of_the_second_example_names_each_record() -> None:
    tables, _ = script("000-example-2")

    assert codes(tables[0], "read") == []
    assert tables[0].definition().primary_key == ("part", "offset")


def test_the_fourth_example_misses_its_key_field_and_except_key() -> None:
    tables, _ = script("000-example-4")

    assert codes(tables[0], "read") == ["key-field", "key-prefix-all"]
    assert [str(c.type) for c in tables[0].columns] == ["INT NOT NULL", "STRING", "TIMESTAMP_LTZ(6)", "DATE"]


def test_the_stray_bracket_of_the_third_example() -> None:
    tables, wrong = script("000-example-3")

    assert [codes(t, "read") for t in tables] == [[]]
    assert [without_code(p) for p in wrong] == [
        "000-example-3.sql:18:1: the bracket that opens in line 17, column 55 is not closed before WITH in line 18, "
        "column 1; declare columns in it and close it with ')', or remove it\n    WITH (\n    ^^^^"
    ]


@pytest.mark.parametrize(
    ("name", "locations"),
    [
        ("000-metadata-source-template", [(8, 3), (11, 3)]),
        ("000-metadata-sink-template", [(4, 3), (7, 3)]),
        ("000-plain-template", [(8, 3)]),
        ("000-scram-template", [(8, 3)]),
        ("001-metadata-template-1", [(7, 26)]),
        ("001-metadata-template-2", [(7, 26)]),
        ("001-metadata-template-3", [(8, 26)]),
    ],
)
def test_a_template_is_reported_at_its_dots(name: str, locations: list[tuple[int, int]]) -> None:
    _, wrong = script(name)

    assert [(p.where.line, p.where.position) for p in wrong] == locations
    assert all(p.message.startswith("... is a placeholder for something that is missing") for p in wrong)


def test_a_template_with_duplicate_options_is_reported_at_each() -> None:
    _, wrong = script("000-startup-template")

    dots = [p for p in wrong if p.code == "sql"]
    twice = [p for p in wrong if p.code == "option-repeated"]
    assert [(p.where.line, p.where.position) for p in dots] == [(2, 3), (5, 3)]
    assert len(twice) == 4
    assert twice[0].message == (
        "the option 'scan.startup.mode' is set twice: in line 9, column 3, and in line 12, column 3"
    )


@pytest.mark.parametrize("name", ["001-syntax-template", "004-syntax-template"])
def test_the_template_of_the_syntax_is_reported_at_its_first_word_that_is_not_a_type(name: str) -> None:
    _, wrong = script(name)

    assert wrong[0].message.startswith("there is no type 'attr_type'")
    assert (wrong[0].where.excerpt or "").splitlines()[1].strip() == "^" * len("attr_type")


def test_a_comment_that_swallows_the_rest_of_its_line_is_named() -> None:
    _, wrong = script("001-ssl-in-one-line")

    assert len(wrong) == 1
    assert "the comment that begins in line 1, column 932 ends with its line" in wrong[0].fix
