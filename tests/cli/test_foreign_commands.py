"""Commands of other packages, which are called as kdsl's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kdsl.cli import main
from tests.installed_plugins import InstallPlugins

COMMANDS = """\
import typer

app = typer.Typer(help="Topics of the shop.")

@app.command()
def count() -> None:
    print("3 topics")

@app.command()
def name() -> None:
    print("orders")

def greet(name: str) -> None:
    \"\"\"Greet somebody.\"\"\"
    print(f"hello {name}")

NUMBER = 1
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install_plugins: InstallPlugins) -> None:
    (tmp_path / "shop_commands.py").write_text(COMMANDS)
    monkeypatch.delitem(sys.modules, "shop_commands", raising=False)
    names = {"greet": "greet", "shop": "app", "number": "NUMBER", "missing": "nothing"}
    places = {name: f"shop_commands:{value}" for name, value in names.items()}
    install_plugins({"kdsl.commands": {**places, "lost": "no_such_module:lost", "check": "shop_commands:greet"}})


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["kdsl", *arguments])
    with pytest.raises(SystemExit) as e:
        main()
    return e.value.code


def test_they_are_called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "greet", "Ada") == 0
    assert call(monkeypatch, "shop", "count") == 0
    assert capsys.readouterr().out == "hello Ada\n3 topics\n"


def test_they_are_listed_after_those_of_kdsl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, "--help")
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    names = [line.split()[0] for line in lines if line]

    assert names.index("run") < names.index("greet")
    assert names.index("dlq") < names.index("shop")  # groups of commands come last
    assert any(line.startswith("greet") and line.endswith("Greet somebody.") for line in lines)
    assert "cannot be imported" in " ".join(lines)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("number", "the command 'number' is neither a function nor a typer.Typer"),
        (
            "missing",
            "the command 'missing' (shop_commands:nothing of the package 'plugins-for-tests') cannot be imported",
        ),
        ("lost", "cannot be imported: No module named 'no_such_module'"),
        ("check", "2 packages register the command 'check'"),
    ],
)
def test_one_that_is_wrong_says_so(
    name: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = call(monkeypatch, name)

    assert code == 1
    assert reason in " ".join(capsys.readouterr().err.split())
