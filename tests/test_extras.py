"""Without the packages of an extra, everything else works, and what needs them names the extra in one sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from kdsl.cli.start import COMMANDS
from kdsl.extras import EXTRAS, MissingPackageError, explain_missing_package, missing_package
from tests.source_trees import import_statements, modules

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# A process in which packages cannot be imported, as if they were not installed.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
DECLARED = """
from decimal import Decimal
import pyarrow as pa
from kdsl import *

class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
    order_id: Col[str]
    amount: Col[Decimal] = col(type="decimal(10, 2)", default=Decimal(1))
    offset: Virtual[int]

    @computed
    def twice(self) -> Decimal:
        return self.amount * 2

"""


def run(code: str, *missing: str) -> str:
    """What a program prints in a process without packages."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=set(missing)) + code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'formats'}", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_extras_are_those_of_the_package() -> None:
    extras = PROJECT["optional-dependencies"]

    assert set(EXTRAS.values()) <= set(extras)
    for package, extra in EXTRAS.items():
        if package not in ("py4j", "pytest"):  # pyspark brings py4j, and pytest is there when its plug-in runs
            assert any(d.startswith(package.replace("_", "-")) for d in extras[extra]), package
    assert "kdsl-kafka[spark,cli,registry,metrics,tls,verify,test,protobuf,aws,azure,gcp]" in extras["all"]


def test_the_page_names_what_each_extra_installs() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = {
        cells[1].strip().strip("`"): cells[3] for cells in (r.split("|") for r in page.splitlines()) if len(cells) == 7
    }

    for extra, required in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items():
        row = rows[f"kdsl-kafka[{extra}]" if extra else "kdsl-kafka"]
        names = [re.split(r"[\[<>=]", requirement)[0] for requirement in required]
        missing = [name for name in names if name.lower() not in row.lower() and name != "kdsl-kafka"]
        assert missing == [], extra


def test_other_packages_are_installed_with_kdsl() -> None:
    names = {"google": "protobuf", "yaml": "pyyaml", "confluent_kafka": "confluent-kafka", "grpc_tools": "grpcio-tools"}
    imported = {
        (getattr(node, "module", None) or alias.name).partition(".")[0]
        for path in modules().values()
        for node, for_types in import_statements(path)
        if not for_types
        for alias in node.names
    }
    others = imported - set(EXTRAS) - sys.stdlib_module_names - {"kdsl", "kdsl_formats"}
    required = " ".join(PROJECT["dependencies"])

    assert {name for name in others if names.get(name, name) not in required} <= {"grpc_tools"}


def test_all_that_needs_no_session_works_without_spark() -> None:
    code = f"""{DECLARED}
import kdsl
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.encode import RecordEncoder

for name in kdsl.__all__:
    getattr(kdsl, name)
table = Table(Orders.definition())
encoded = RecordEncoder(table.write_plan()).encode(pa.record_batch({{
    "order_id": pa.array(["a", "b"]),
    "amount": pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(10, 2)),
}}), 0)
plan = table.read_plan(["order_id", "amount"])
decoder = RecordDecoder(plan)
(rows,) = [decoder.decode(pa.record_batch({{n: encoded.column(n) for n in decoder.needs}}))]
print(rows.to_pylist() if hasattr(rows, "to_pylist") else rows)
print(f"{{Orders.order_id}}", table.read_plan().output.names)
"""

    rows, names = run(code, "pyspark", "py4j", "pandas").splitlines()
    assert "'order_id': 'a', 'amount': Decimal('1.50')" in rows
    assert names == "order_id ('order_id', 'amount', 'offset', 'twice')"


ALL_EXTRAS = {*EXTRAS} - {"pytest"}


def test_every_public_name_is_there_without_any_extra() -> None:
    """``from kdsl import *``, ``help(kdsl)`` and completion in notebooks take all of them."""
    code = "import inspect\nfrom kdsl import *\nimport kdsl\nprint(len(inspect.getmembers(kdsl)) >= len(kdsl.__all__))"

    assert run(code, *ALL_EXTRAS) == "True\n"


CALLS = {
    "Orders.schema()": "a schema of Spark's",
    "Orders.key_schema()": "a schema of Spark's",
    "Orders.value_schema()": "a schema of Spark's",
    "Orders.rows([Orders(order_id='a')])": "a DataFrame of rows",
    "Orders.read(None, Cluster('localhost:1'))": "a read with Spark",
    "Orders.read_stream(None, Cluster('localhost:1'))": "a read with Spark",
    "Orders.dead_letters(None, Cluster('localhost:1'))": "a read with Spark",
    "Orders.write(None, Cluster('localhost:1'))": "a write with Spark",
    "Orders.write_stream(None, Cluster('localhost:1'), checkpoint='c')": "a write with Spark",
    "Orders.decode(None)": "decoding a DataFrame",
    "Orders.encode(None)": "encoding a DataFrame",
}
EXPRESSIONS = (
    "Orders.amount > 1",
    "Orders.order_id == 'a'",
    "'a' + Orders.order_id",
    "~Orders.amount",
    "Orders.amount.isNull()",
    "Orders.order_id['a']",
)


@cache
def find_errors(expressions: tuple[str, ...], *missing: str) -> dict[str, str]:
    """The error of each expression over `DECLARED` without packages, all in one process."""
    code = f"""{DECLARED}
import json

errors = {{}}
for expression in {expressions!r}:
    try:
        eval(expression)
    except KdslError as e:
        errors[expression] = str(e)
print(json.dumps(errors))
"""
    errors: dict[str, str] = json.loads(run(code, *missing))
    return errors


@pytest.mark.parametrize(("call", "purpose"), CALLS.items())
def test_without_spark_what_needs_a_session_says_so(call: str, purpose: str) -> None:
    errors = find_errors((*CALLS,), *sorted(ALL_EXTRAS))

    assert errors[call] == f"{purpose} needs the package pyspark; install 'kdsl-kafka[spark]'"


def test_pyspark_is_not_imported_by_declarations_and_plans() -> None:
    code = DECLARED + "Table(Orders.definition()).read_plan()\nprint('pyspark' in sys.modules, 'polars' in sys.modules)"

    assert run(code) == "False False\n"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_without_spark_an_expression_is_an_error_and_compares_no_strings(expression: str) -> None:
    message = find_errors(EXPRESSIONS, "pyspark", "py4j")[expression]

    assert message.startswith("an expression over Orders.")
    assert message.endswith("needs the package pyspark; install 'kdsl-kafka[spark]'")


def test_a_missing_package_is_named_with_its_extra() -> None:
    with (
        pytest.raises(
            MissingPackageError,
            match=r"^metrics need the package psutil; install 'kdsl-kafka\[test\]'$".replace("need", "needs"),
        ),
        explain_missing_package("metrics"),
    ):
        raise ModuleNotFoundError(name="psutil")
    with pytest.raises(ModuleNotFoundError, match="other"), explain_missing_package("metrics"):
        raise ModuleNotFoundError("other", name="other")
    assert missing_package("metrics", ImportError()) is None
    assert missing_package("metrics", ModuleNotFoundError(name="psutil.newer")) is None  # of another version
    assert missing_package("metrics", ImportError(name="pyspark")) is None  # which lacks a name
    pandas = missing_package(
        "a read", ImportError("[PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however,")
    )
    assert str(pandas) == (
        "a read needs the package pandas; install 'kdsl-kafka[spark]', "
        "or the package alone where a platform brings PySpark"
    )


@pytest.mark.parametrize(
    ("missing", "code", "message"),
    [
        (
            "httpx",
            "from kdsl.registry import registry_client",
            "a schema registry needs the package httpx; install 'kdsl-kafka[registry]'",
        ),
        (
            "prometheus_client",
            "import kdsl; kdsl.serve_metrics()",
            "kdsl.serve_metrics needs the package prometheus_client; install 'kdsl-kafka[metrics]'",
        ),
        (
            "psutil",
            "from kdsl.testing import LocalKafka",
            "kdsl.testing.LocalKafka needs the package psutil; install 'kdsl-kafka[test]'",
        ),
        (
            "pyspark",
            "from kdsl import pipelines",
            "kdsl.pipelines needs the package pyspark; install 'kdsl-kafka[spark]'",
        ),
        (
            "cryptography",
            "from kdsl.client_settings.stores import _read_pkcs12; _read_pkcs12(b'', None, trusted=True)",
            "a PKCS12 store needs the package cryptography; install 'kdsl-kafka[tls]'",
        ),
    ],
)
def test_what_needs_an_extra_says_so(missing: str, code: str, message: str) -> None:
    program = f"from kdsl.errors import KdslError\ntry:\n    exec({code!r})\nexcept KdslError as e:\n    print(e)"

    assert run(program, missing).strip() == message


@pytest.mark.parametrize(
    ("missing", "arguments", "message"),
    [
        ("typer", ["check", "x.py"], "kdsl: the command line needs the package typer; install 'kdsl-kafka[cli]'"),
        ("polars", ["verify", "a", "b"], "kdsl: kdsl verify needs the package polars; install 'kdsl-kafka[verify]'"),
        ("pyspark", ["run", "x.sql"], "kdsl: kdsl run needs the package pyspark; install 'kdsl-kafka[spark]'"),
    ],
)
def test_the_command_says_what_to_install(missing: str, arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "x.sql").write_text(
        """CREATE TABLE t (id INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
        CREATE TABLE p (id INT) WITH ('connector' = 'print');
        INSERT INTO p SELECT * FROM t;"""
    )
    argv = ["kdsl", *(str(tmp_path / a) if a.endswith(".sql") else a for a in arguments)]

    assert run(command(argv), missing, "py4j").strip() == message


def command(argv: list[str]) -> str:
    """A program that runs the command line, and prints how it ends unless that is well."""
    return f"""
import sys
from kdsl.cli import main

sys.argv = {argv!r}
try:
    main()
except SystemExit as e:
    if e.code:
        print(e.code)
"""


def test_the_list_of_commands_needs_only_those_of_the_command_line() -> None:
    shown = run(command(["kdsl", "--help"]), *ALL_EXTRAS - {"typer", "rich"})

    words = " ".join(shown.replace("│", " ").split())
    assert all(name in words for name in COMMANDS.find_all())
    assert "kdsl kafka needs the package psutil; install 'kdsl-kafka[test]'." in words


def test_topics_are_compared_and_a_cluster_is_examined_without_a_registry_and_spark(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(DECLARED)
    missing = ALL_EXTRAS - {"typer", "rich"}
    broker = ["--bootstrap", "127.0.0.1:1"]

    assert "no broker of 127.0.0.1:1 answered" in run(command(["kdsl", "diff", str(file), *broker]), *missing)
    printed = run(command(["kdsl", "doctor", "--json", *broker]), *missing)
    findings = json.loads(printed[: printed.rindex("}") + 1])["findings"]
    assert {"check": "Spark", "state": "ok"}.items() <= next(f for f in findings if f["check"] == "Spark").items()
    assert [f["check"] for f in findings if f["state"] == "error"] == ["network 127.0.0.1:1"]


def test_a_project_is_created_with_the_command_line_alone(tmp_path: Path) -> None:
    created = run(command(["kdsl", "init", str(tmp_path / "shop")]), *ALL_EXTRAS - {"typer", "rich"})

    assert "next: cd" in created


def test_a_local_kafka_with_sample_rows_needs_no_spark_and_without_schemas_no_registry(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(DECLARED.replace("value=Json()", "value=Json(), properties={'bootstrap.servers': 'kafka:9092'}"))
    program = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.stderr = sys.stdout\n"

    shown = run(program + command(["kdsl", "dev", str(file)]), *ALL_EXTRAS - {"typer", "rich", "psutil"})

    assert "is on kafka:9092, which is not on this machine" in shown


@pytest.mark.parametrize("name", ["check", "plan"])
def test_without_spark_the_commands_that_need_none_work(tmp_path: Path, name: str) -> None:
    file = tmp_path / "orders.py"
    file.write_text(DECLARED)

    lines = run(command(["kdsl", name, str(file)]), "pyspark", "py4j", "pandas").splitlines()
    assert "Orders" in lines[0] or lines == ["1 table checked: no problems"]
