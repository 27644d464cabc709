"""kdsl codegen and kdsl export as commands: what they write, that they write it again, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.codegen import CodegenError

CODEGEN = Path(__file__).parents[1] / "codegen"
GOLDEN = CODEGEN / "golden"
CASES = {
    "orders_avro.py": ("avro", "data/orders.avsc", "--topic", "orders"),
    "orders_json.py": ("json-schema", "data/orders.schema.json", "--topic", "orders", "--name", "orders"),
    "orders_proto.py": ("proto", "data/shop.proto", "--topic", "orders"),
    "tables_sql.py": ("ddl", "data/tables.sql"),
}


@pytest.mark.parametrize("name", [name for name in CASES if name != "orders_proto.py"])
def test_golden_modules_are_what_is_written(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)

    done = CliRunner().invoke(app, ["codegen", *CASES[name]])

    assert (done.exit_code, done.stdout) == (0, (GOLDEN / name).read_text(encoding="utf-8"))


def test_paths_are_unchanged_if_no_file_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)

    done = CliRunner().invoke(app, ["codegen", *CASES["orders_proto.py"]])

    assert 'value=Protobuf(proto_file="data/shop.proto", message_class_name="shop.Order")' in done.stdout


@pytest.mark.parametrize("name", CASES)
def test_check_finds_golden_modules_unchanged_and_passes_the_tables(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)

    done = CliRunner().invoke(app, ["codegen", *CASES[name], "--out", f"golden/{name}", "--check"])

    assert (done.exit_code, done.stdout) == (0, "")


def test_the_example_is_what_is_written_from_its_schema() -> None:
    examples = Path(__file__).parents[2] / "examples"
    command = ["codegen", "avro", str(examples / "schemas" / "payment.avsc"), "--topic", "payments"]

    done = CliRunner().invoke(app, [*command, "--out", str(examples / "payments.py"), "--check"])

    assert (done.exit_code, done.stdout) == (0, "")


def test_check_prints_what_would_change_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)
    target = tmp_path / "orders.py"
    command = ["codegen", *CASES["orders_json.py"], "--out", str(target)]

    assert CliRunner().invoke(app, [*command, "--check"]).exit_code == 1
    assert not target.exists()
    assert CliRunner().invoke(app, command).exit_code == 0
    target.write_text(target.read_text(encoding="utf-8").replace("Its number.", "Edited."), encoding="utf-8")

    done = CliRunner().invoke(app, [*command, "--check"])

    assert done.exit_code == 1
    assert '-    """Edited."""\n+    """Its number."""\n' in done.stdout
    assert "Edited." in target.read_text(encoding="utf-8")


def test_writing_again_leaves_the_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)
    target = tmp_path / "orders.py"
    command = ["codegen", *CASES["orders_avro.py"], "--out", str(target)]
    CliRunner().invoke(app, command)
    before = target.stat().st_mtime_ns

    CliRunner().invoke(app, command)

    assert target.stat().st_mtime_ns == before


def test_json_contains_the_source_and_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)

    done = CliRunner().invoke(app, ["codegen", *CASES["orders_proto.py"], "--json"])

    document = json.loads(done.stdout)
    assert document["tables"] == ["Order"]
    assert "class Order(" in document["source"]
    assert document["notes"] == ["'card' and 'transfer' are a oneof (payment): at most one of them has a value"]


@pytest.mark.parametrize(
    ("title", "options", "name"),
    [
        ("Order", (), "Order"),
        ("https://x.org/orders/", (), "orders"),
        ("An order, of 2026", (), "AnOrderOf2026"),
        ("/", (), "shop.schema"),
        (None, (), "shop.schema"),
        ("Order", ("--name", "orders"), "orders"),
    ],
)
def test_a_json_schema_names_the_table_by_its_title_or_else_its_file(
    title: str | None, options: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.schema.json"
    file.write_text(json.dumps({"title": title, "type": "object", "properties": {"a": {"type": "string"}}}))

    done = CliRunner().invoke(app, ["codegen", "json-schema", str(file), "--json", *options])

    assert json.loads(done.stdout)["tables"] == [name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["avro", "nope.avsc"], "the file 'nope.avsc' cannot be read"),
        (["avro", "data/tables.sql"], "an Avro schema must be JSON, and this is not"),
        (["json-schema", "data/tables.sql"], "is not valid JSON"),
        (["ddl", "nope.sql"], "there is no file 'nope.sql'"),
        (["proto", "nope.proto"], "the file 'nope.proto' cannot be read"),
    ],
)
def test_paths_that_are_not_files(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)

    done = CliRunner().invoke(app, ["codegen", *arguments])

    assert isinstance(done.exception, CodegenError)
    assert message in str(done.exception)


def test_files_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    schema, packed = CODEGEN / "data/orders.avsc", tmp_path / "packed.py"
    packed.write_bytes(b"\xff\xfe")

    for out, message in (
        (tmp_path / "none" / "x.py", "cannot be written"),
        (tmp_path, "cannot be written"),
        (packed, "not UTF-8"),
    ):
        done = CliRunner().invoke(app, ["codegen", "avro", str(schema), "--out", str(out)])

        assert isinstance(done.exception, CodegenError)
        assert message in str(done.exception)


@pytest.mark.parametrize("arguments", [["registry", "x"], ["topic", "x"], ["avro", "data/orders.avsc", "--check"]])
def test_wrong_arguments_exit_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CODEGEN)
    for name in ("KDSL_REGISTRY", "KDSL_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)

    assert CliRunner().invoke(app, ["codegen", *arguments]).exit_code == 2


def test_the_way_back(tmp_path: Path) -> None:
    source = GOLDEN / "tables_sql.py"

    ddl = CliRunner().invoke(app, ["export", "ddl", str(source), "--out", str(tmp_path / "tables.sql")])
    yaml = CliRunner().invoke(app, ["export", "yaml", str(source), "--out", str(tmp_path / "tables.yaml")])
    avro = CliRunner().invoke(app, ["export", "avro", f"{GOLDEN / 'orders_avro.py'}:Order"])

    assert (ddl.exit_code, yaml.exit_code, avro.exit_code) == (0, 0, 0), (ddl, yaml, avro)
    for name in ("tables.sql", "tables.yaml"):
        again = CliRunner().invoke(app, ["export", "ddl", str(tmp_path / name)])
        assert [line for line in again.stdout.splitlines() if "`total`" not in line and line[:2] != "--"] == [
            line for line in (tmp_path / "tables.sql").read_text(encoding="utf-8").splitlines() if "`total`" not in line
        ]
    assert [field["name"] for field in json.loads(avro.stdout)["fields"]][:2] == ["id", "class"]
