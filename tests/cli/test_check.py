"""``kdsl check``, ``plan``, ``schema``: what they print, and how they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app

TABLES = Path(__file__).parent / "tables"
GOOD = str(TABLES / "good.py")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


class TestCheck:
    def test_eight_mistakes_are_all_reported_with_line_and_fix(self) -> None:
        done = run("check", str(TABLES / "eight_mistakes.py"))

        assert done.exit_code == 1
        lines = done.stdout.splitlines()
        messages = {int(line_number) for line in lines for line_number in line.split(":")[1:2] if line_number.isdigit()}
        for expected in (
            "topic='orders' and topic_pattern='orders-.*' are both set",
            "ignore_parse_errors=) has the value 'yes'",
            "key_prefix='k_' and value_fields='ALL' exclude each other",
            "has no argument startpu= (did you mean 'startup'?)",
            "'erliest' (did you mean 'earliest'?)",
            "key_prefix='k_', but the name of this key column does not start with it",
            "a watermark needs a TIMESTAMP or TIMESTAMP_LTZ column, but this is DOUBLE",
            "there is no metadata 'ofset' (did you mean 'offset'?)",
        ):
            assert expected in done.stdout
        assert messages == {13, 15, 16, 17, 18, 22, 23, 25}
        assert done.stdout.count("fix:") == 8
        assert lines[-1] == "1 table checked: 8 errors"

    def test_valid_tables_exit_with_0(self) -> None:
        done = run("check", GOOD)

        assert done.exit_code == 0
        assert "2 tables checked: 1 warning" in done.stdout
        assert "does not name a single topic" in done.stdout

    def test_a_table_is_checked_for_what_it_is_declared_for(self, tmp_path: Path) -> None:
        head = "from kdsl import Col, Json, KafkaTable\n\nclass Orders(KafkaTable, value=Json(), "
        for arguments, errors in (
            ("topic_pattern='orders-.*'", []),  # only a warning: it can only be read
            ("topic_pattern='orders-.*', direction='read'", []),
            ("topic_pattern='orders-.*', direction='write'", ["sink-topic"]),
            ("topic='orders', direction='WRITE', startup='earliest'", []),
            ("topic='orders', direction='reading'", ["option-value"]),
        ):
            (tmp_path / "tables.py").write_text(f"{head}{arguments}):\n    n: Col[int]\n")
            done = json.loads(run("check", str(tmp_path / "tables.py"), "--json").stdout)
            assert [p["code"] for p in done["problems"] if p["severity"] == "error"] == errors
            assert len(done["problems"]) == len(errors) + (arguments == "topic_pattern='orders-.*'")

    def test_a_direction_that_a_table_is_not_declared_for_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "tables.yaml").write_text(
            "tables: [{name: t, columns: [{name: n, type: INT}], options: {connector: kafka, topic: t, format: json, "
            "direction: read}}]"
        )
        assert run("check", str(tmp_path / "tables.yaml")).exit_code == 0
        refused = run("check", str(tmp_path / "tables.yaml"), "--direction", "write")
        assert "'direction': 'read' declares the table for one direction: it cannot write" in refused.stdout

    def test_tables_of_a_script_are_checked_for_what_its_statements_do(self, tmp_path: Path) -> None:
        columns = "(n INT) WITH ('connector' = 'kafka', 'format' = 'json', 'properties.bootstrap.servers' = 'k:1', "
        script = (
            f"CREATE TABLE a {columns}'topic-pattern' = 'a-.*', 'properties.group.id' = 'g');\n"
            f"CREATE TABLE b {columns}'topic' = 'b');\nINSERT INTO b SELECT n FROM a;\n"
        )
        (tmp_path / "script.sql").write_text(script)
        done = run("check", str(tmp_path / "script.sql"))
        assert done.stdout == "2 tables checked: no problems\n"

    def test_one_table_of_a_file(self) -> None:
        assert run("check", f"{GOOD}:Orders").stdout == "1 table checked: no problems\n"

    def test_one_table_by_the_name_of_its_class(self, tmp_path: Path) -> None:
        (tmp_path / "tables.py").write_text(
            "from kdsl import Col, Json, KafkaTable\n\n"
            "class UserClicks(KafkaTable, name='clicks', topic='clicks', value=Json()):\n    n: Col[int]\n\n"
            "class Others(KafkaTable, topic='others', value=Json()):\n    n: Col[int]\n"
        )
        for name in ("UserClicks", "clicks"):
            assert "1 table checked" in run("check", f"{tmp_path}/tables.py:{name}").stdout
        assert "has no table 'Clicks'" in run("check", f"{tmp_path}/tables.py:Clicks").stdout

    def test_a_read_only_format_is_not_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "tables.py").write_text(
            "from kdsl import Col, DebeziumJson, KafkaTable\n\n"
            "class Orders(KafkaTable, topic='orders', value=DebeziumJson(schema_include=True)):\n    n: Col[int]\n"
        )
        done = run("check", f"{tmp_path}/tables.py")
        assert done.exit_code == 0
        assert "(the table can only be read)" in done.stdout
        assert run("check", f"{tmp_path}/tables.py", "--direction", "write").exit_code == 1

    def test_json_for_machines(self) -> None:
        done = run("check", "--json", str(TABLES / "eight_mistakes.py"))
        document = json.loads(done.stdout)

        assert done.exit_code == 1
        assert (document["tables"], document["errors"], len(document["problems"])) == (["Orders"], 8, 8)
        assert set(document["problems"][0]) == {"code", "message", "fix", "where", "severity", "option", "property"}

    def test_a_document(self, tmp_path: Path) -> None:
        path = tmp_path / "tables.yaml"
        path.write_text(
            "name: a\ncolumns: [{name: x, type: INTT}]\noptions: {connector: kafka, topic: a, format: json}\n"
        )
        done = run("check", str(path))

        assert done.exit_code == 1
        assert f"{path}:2" in done.stdout
        assert "$.columns[0].type" in done.stdout

    def test_a_file_that_cannot_be_imported_is_reported_with_its_line(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.py"
        path.write_text("import os\nraise RuntimeError('no')\n")
        done = run("check", str(path))

        assert done.exit_code == 1
        assert f"{path}:2" in done.stdout
        assert "RuntimeError: no" in done.stdout

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("nowhere.py", "there is no file 'nowhere.py'"),
            ("no_such_module", "there is no module or file 'no_such_module'"),
            (f"{GOOD}:Order", "has no table 'Order' (did you mean 'Orders'?)"),
            ("json", "'json' declares no table"),
        ],
    )
    def test_a_target_that_does_not_exist(self, target: str, message: str) -> None:
        done = run("check", target)

        assert done.exit_code == 1
        assert message in done.stdout
        assert json.loads(run("check", "--json", target).stdout)["errors"] == 1

    def test_one_missing_target_does_not_hide_the_others(self) -> None:
        assert "2 tables checked: 1 error, 1 warning" in run("check", "nowhere.py", GOOD).stdout

    @pytest.mark.parametrize("target", [".", "", "./orders", "-"])
    def test_an_invalid_module_name(self, target: str) -> None:
        assert "name a file, as orders.py, tables.yaml or tables.sql, or a module" in run("check", target).stdout

    def test_a_file_that_exits_when_it_is_imported_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "leaves.py"
        path.write_text("import sys\nsys.exit(0)\n")
        done = run("check", str(path))

        assert done.exit_code == 1
        assert f"{path}:2: error: the file cannot be imported: SystemExit: 0" in done.stdout

    def test_a_mistake_in_a_call_is_reported_where_the_user_wrote_it(self, tmp_path: Path) -> None:
        path = tmp_path / "calls.py"
        path.write_text("import json\n\njson.loads('{')\n")

        assert f"{path}:3" in run("check", str(path)).stdout

    @pytest.mark.parametrize("name", ["json.py", "good.py", "with blank.py", "c:orders.py", "ünï.py"])
    def test_a_file_may_have_any_name(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        path.write_bytes(Path(GOOD).read_bytes())
        before = sys.modules["json"]
        done = run("check", f"{path}:Orders")

        assert done.stdout == "1 table checked: no problems\n"
        assert sys.modules["json"] is before

    def test_a_common_part_without_a_topic_is_not_a_table(self, tmp_path: Path) -> None:
        path = tmp_path / "common.py"
        path.write_text(
            "from kdsl import Col, Json, KafkaTable\n\n\nclass Common(KafkaTable, value=Json()):\n    a: Col[int]\n\n\n"
            "class Orders(Common, topic='orders'):\n    b: Col[int]\n"
        )

        assert run("check", str(path)).stdout == "1 table checked: no problems\n"

    def test_brackets_backslashes_and_colons_are_printed_unchanged(self, tmp_path: Path) -> None:
        path = tmp_path / "odd.py"
        path.write_text(
            "from kdsl import Col, Json, KafkaTable\n\n\n"
            "class Orders(KafkaTable, topic_pattern='x[bold]:key:\\\\[(', value=Json()):\n    a: Col[int]\n"
        )

        assert r"topic_pattern='x[bold]:key:\\[(' is not a regular expression" in run("check", str(path)).stdout


class TestPlan:
    def test_a_read(self) -> None:
        done = run("plan", f"{GOOD}:Orders")

        assert done.exit_code == 0
        assert done.stdout.splitlines()[:2] == ["Read Orders", "  source    topic orders"]

    def test_a_write(self) -> None:
        assert run("plan", f"{GOOD}:Orders", "--write").stdout.startswith("Write Orders\n")

    def test_json(self) -> None:
        assert json.loads(run("plan", f"{GOOD}:Orders", "--json").stdout)["table"] == "Orders"

    def test_one_of_several_must_be_named(self) -> None:
        done = run("plan", GOOD)

        assert done.exit_code == 1
        assert f"write {GOOD}:Orders" in str(done.exception)


class TestSchema:
    def test_of_the_table(self) -> None:
        assert " |-- k_order_id: string (nullable = false)" in run("schema", f"{GOOD}:Orders").stdout

    def test_of_the_key(self) -> None:
        assert run("schema", "--key", f"{GOOD}:Orders").stdout == "root\n |-- order_id: string (nullable = false)\n"

    def test_of_the_value_as_json(self) -> None:
        document = json.loads(run("schema", "--value", "--json", f"{GOOD}:Orders").stdout)

        assert [field["name"] for field in document["fields"]] == ["amount"]

    def test_key_or_value(self) -> None:
        assert run("schema", "--key", "--value", f"{GOOD}:Orders").exit_code == 2
