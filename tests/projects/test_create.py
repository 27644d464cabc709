"""Projects are created as a whole or not at all, and no file is overwritten."""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import kdsl
from kdsl.cli.app import app
from kdsl.projects.create import (
    Names,
    ProjectError,
    Template,
    _compatible_versions,
    create_project,
    render,
    suggest_table,
)

NAMES = Names("shop-orders", "orders", "Orders")


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("template", Template)
def test_every_name_is_that_of_the_project(tmp_path: Path, template: Template) -> None:
    written = create_project(tmp_path, template, Names("Bills.of-Shop", "bills.v1", "BillsV1")).written

    texts = contents(tmp_path)
    assert sorted(texts) == sorted(written)
    assert {".gitignore", ".github/workflows/check.yml", "README.md", "pyproject.toml"} <= texts.keys()
    monitoring = {"monitoring/dashboard.json", "monitoring/alerts.yml"} & texts.keys()
    assert len(monitoring) == (0 if template is Template.PIPELINE else 2)
    assert [name for name, text in texts.items() if "sample" in (name + text).replace("samples", "").lower()] == []
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    assert project["name"] == "Bills.of-Shop"
    assert f">={kdsl.__version__},<" in project["dependencies"][0]


def test_a_second_time_nothing_is_written_and_what_is_missing_is_added(tmp_path: Path) -> None:
    first = create_project(tmp_path, Template.JOB, NAMES)
    before = contents(tmp_path)

    again = create_project(tmp_path, Template.JOB, NAMES)
    assert (again.written, again.unchanged) == ((), first.written)

    (tmp_path / "README.md").unlink()
    assert create_project(tmp_path, Template.JOB, NAMES).written == ("README.md",)
    assert contents(tmp_path) == before


def test_files_with_other_content_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "tests").write_text("a file where a folder is needed")
    (tmp_path / ".gitignore").symlink_to(tmp_path / "nowhere")

    with pytest.raises(ProjectError) as error:
        create_project(tmp_path, Template.JOB, NAMES)

    assert all(name in str(error.value) for name in ("README.md", "tests/__init__.py", ".gitignore"))
    assert "pyproject.toml" not in str(error.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".gitignore", "README.md", "tests"]


def test_if_a_file_cannot_be_written_none_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fail_late(path: Path, target: Path) -> Path:
        if target.name == "pyproject.toml":
            raise OSError(28, os.strerror(28))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_late)

    with pytest.raises(ProjectError, match="No space left"):
        create_project(tmp_path, Template.JOB, NAMES)
    assert contents(tmp_path) == {}


def test_all_wrong_names_are_reported_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with pytest.raises(ProjectError) as error:
        create_project(folder, Template.JOB, Names("1st", "a topic", "orders"))

    assert [line.split("'")[1] for line in str(error.value).splitlines()] == ["1st", "a topic", "orders"]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (Names("json", "orders", "Orders"), "would hide the Python module 'json'"),
        (Names("pyspark", "orders", "Orders"), "would hide"),
        (Names("class", "orders", "Orders"), "would hide"),
        (Names("a--b-", "orders", "Orders"), "cannot be a Python package"),
        (Names("shop", "..", "Orders"), "the topic '..'"),
        (Names("shop", "o" * 244, "Orders"), "1 to 243"),
        (Names("shop", "orders", "Json"), "imports another Json"),
        (Names("shop", "orders", "True"), "cannot be a class"),
    ],
)
def test_names_that_cannot_work_are_refused(tmp_path: Path, names: Names, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        create_project(tmp_path, Template.JOB, names)


def test_names_may_contain_the_samples_of_the_templates() -> None:
    texts = render(Template.JOB, Names("sample-topic", "sample-project", "SampleTable2"))

    assert 'topic="sample-project"' in texts["sample_topic/tables.py"]
    assert 'transactional_id_prefix="sample-topic"' in texts["sample_topic/tables.py"]


@pytest.mark.parametrize(
    ("topic", "table"), [("orders", "Orders"), ("shop.big_orders-v1", "ShopBigOrdersV1"), ("1st", "Table1st")]
)
def test_the_table_is_named_after_the_topic(topic: str, table: str) -> None:
    assert suggest_table(topic) == table
    assert list(Names("shop", topic, table).find_problems()) == []


@pytest.mark.parametrize(
    ("version", "versions"),
    [("0.1.0", ">=0.1.0,<0.2"), ("1.4.2", ">=1.4.2,<2"), ("0.2.0.dev1+g12", ">=0.2.0.dev1,<0.3")],
)
def test_the_versions_of_kdsl_that_fit(version: str, versions: str) -> None:
    assert _compatible_versions(version) == versions


def test_the_command_names_the_project_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop-orders").mkdir()
    monkeypatch.chdir(tmp_path / "shop-orders")
    runner = CliRunner()

    done = runner.invoke(app, ["init", "--topic", "big.orders"])
    assert done.exit_code == 0, done.output
    assert "class BigOrders(" in Path("shop_orders/tables.py").read_text()

    again = runner.invoke(app, ["init", "--topic", "big.orders"])
    assert again.exit_code == 0
    assert "unchanged" in again.output

    other = runner.invoke(app, ["init", "--topic", "users"])
    assert isinstance(other.exception, ProjectError)


@pytest.mark.parametrize("template", Template)
def test_the_commands_of_the_readme_exist_and_can_be_repeated(tmp_path: Path, template: Template) -> None:
    """A Kafka that deletes its data when it stops would not fit the checkpoint of the first time."""
    texts = render(template, NAMES)
    commands = [line.rpartition(" | ")[2] for line in texts["README.md"].replace("\\\n", "").splitlines()]
    starts = []
    for command in (shlex.split(line) for line in commands if line.startswith("kdsl ")):
        context: Any = get_command(app).make_context("kdsl", command[1:])
        while hasattr(context.command, "resolve_command"):  # a group parses no more than the name of its command
            _, chosen, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
            context = chosen.make_context(chosen.name, rest, parent=context)
        starts += [context.params] if context.info_name in ("start", "dev") else []

    assert len(starts) == 1
    assert "data_dir" not in starts[0] or starts[0]["data_dir"] == Path(".kdsl/kafka")
    assert ".kdsl/" in texts[".gitignore"].split()
