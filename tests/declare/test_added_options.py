"""Options that another package adds to all tables, by the same entry points as those of vendors that kdsl knows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed_plugins import write_metadata
from tests.pages import ROOT

PACKAGE = """\
from kdsl.client_settings.properties import Properties
from kdsl.declare.added_options import AddedOptions
from kdsl.errors import Problem
from kdsl.options import option


class ShopOptions(AddedOptions):
    shop_rack: str | None = option("shop.rack", "The rack of the client.", default=None)

    def change_properties(self, properties):
        return Properties({**properties, **({"client.rack": self.shop_rack} if self.shop_rack else {})})

    def check_table(self, table):
        if self.shop_rack == "cellar":
            yield Problem("shop-rack", f"{table.option_name('shop_rack')} floods", "take another", option="shop_rack")
"""
TABLES = """\
from kdsl import Json, KafkaTable


class Orders(KafkaTable, topic="orders", value=Json(), shop_rack="cellar"):
    id: int
"""
SCRIPT = """\
CREATE TABLE orders (id BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
  'shop.rack' = '{}'
);
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "shop_options.py").write_text(PACKAGE)
    (tmp_path / "tables.py").write_text(TABLES)
    (tmp_path / "wrong.sql").write_text(SCRIPT.format("cellar"))
    (tmp_path / "right.sql").write_text(SCRIPT.format("a1"))
    write_metadata(tmp_path, {"kdsl.table_options": {"shop": "shop_options:ShopOptions"}})
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "formats")])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_they_are_options_of_tables_in_python_and_sql(package: Path) -> None:
    code, output = run(package, "-m", "kdsl", "check", "tables.py", "wrong.sql")

    assert code == 1
    assert "shop_rack= floods" in output
    assert "tables.py:4" in output
    assert "'shop.rack' floods" in output
    assert "wrong.sql:4" in output
    assert run(package, "-m", "kdsl", "check", "right.sql")[0] == 0


def test_they_change_client_properties(package: Path) -> None:
    code, output = run(package, "-c", "import tables; print(tables.Orders.as_table().definition.properties)")

    assert (code, "'client.rack': 'cellar'" in output) == (0, True), output


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        (
            "raise RuntimeError('no license')",
            "cannot be imported: RuntimeError, which python -c 'import shop_options' explains",
        ),
        (PACKAGE.replace("shop_rack", "topic"), "adds the option 'topic', which tables have already"),
        (PACKAGE.replace("shop.rack", "scan.startup.mode"), "adds the option 'scan.startup.mode', which tables have"),
        (PACKAGE.replace("shop.rack", "sink.buffer-flush.interval"), "'sink.buffer-flush.interval', which tables have"),
        (PACKAGE.replace("shop.rack", "dew.endpoint"), "adds the option 'dew.endpoint', which tables have already"),
        (PACKAGE.replace(", default=None", ""), "adds the option 'shop_rack' without a default to all tables"),
    ],
)
def test_those_that_cannot_be_added_are_named_with_their_package(package: Path, code: str, reason: str) -> None:
    (package / "shop_options.py").write_text(code)

    code_of_import, output = run(package, "-c", "import kdsl; from kdsl import KafkaTable")

    assert code_of_import == 1
    assert "the group of table options 'shop' (shop_options:ShopOptions of the package 'plugins-for-tests')" in output
    assert reason in output


def test_a_command_says_that_they_cannot_be_imported(package: Path) -> None:
    (package / "shop_options.py").write_text("import no_such_module")

    code, output = run(package, "-m", "kdsl", "check", "tables.py")

    assert code == 1
    assert output.count("cannot be imported") == 1, output
    assert "'plugins-for-tests'" in output
    assert "Traceback" not in output
