"""Annotations are evaluated late from Python 3.14 on (PEP 649): tables may use names that do not exist yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kdsl import Col, Json, KafkaTable, Table
from kdsl.types.python import class_members, read_annotations

ROOT = Path(__file__).parents[2]
PROGRAM = """\
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from kdsl import Col, Json, KafkaTable, Table, computed

if TYPE_CHECKING:
    from decimal import Decimal


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
    line: Col[Line]
    lines: Col[list[Line] | None]
    pair: Col[Pair]
    shape: Col[Shape]

    @computed
    def twice(self) -> Number:
        return self.number * 2

    number: Col[int]


class Bad(KafkaTable, topic="orders", value=Json(), startup="earliest"):
    amount: Col[Decimal]


@dataclass
class Line:
    number: Number


class Pair(NamedTuple):
    number: Number


class Shape(TypedDict):
    number: Number


Number = int
print(Table(Orders.definition()).read_plan().output)
try:
    Table(Bad.definition()).read_plan()
except Exception as e:
    print(e)
"""


def simulate_python_314(monkeypatch: pytest.MonkeyPatch, strings: dict[str, str]) -> None:
    """Let annotations raise NameError when they are read, as Python 3.14 does, and be there as strings."""

    def evaluate(owner: Any) -> dict[str, Any]:
        raise NameError("name 'Later' is not defined", name="Later")

    def read(owner: Any, **arguments: str) -> dict[str, str]:
        assert arguments == {"format": "string"}
        return strings

    lazy = SimpleNamespace(Format=SimpleNamespace(STRING="string"), get_annotations=read)
    monkeypatch.setattr("inspect.get_annotations", evaluate)
    monkeypatch.setitem(sys.modules, "annotationlib", lazy)


def test_annotations_that_cannot_be_evaluated_yet_are_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_python_314(monkeypatch, {"line": "Col[Later]"})

    assert read_annotations(object) == {"line": "Col[Later]"}


def test_a_table_is_declared_before_the_class_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        simulate_python_314(patch, {"line": "Col[list[Later]]"})

        class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
            line: Col[list[Later]]

    assert str(Table(Orders.definition()).read_plan().output) == "ROW<`line` ARRAY<BIGINT NOT NULL> NOT NULL> NOT NULL"


Later = int


def test_a_class_without_own_annotations_has_the_members_of_its_base() -> None:
    class Pair(NamedTuple):
        number: int

    class Named(Pair):
        pass

    assert list(class_members(Named) or ()) == ["number"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are evaluated late from Python 3.14 on")
def test_names_may_follow_the_table(tmp_path: Path) -> None:
    (tmp_path / "tables.py").write_text(PROGRAM, encoding="utf-8")

    run = subprocess.run(
        [sys.executable, str(tmp_path / "tables.py")],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'formats'}"},
        capture_output=True,
        text=True,
        check=False,
    )

    output = run.stdout.splitlines()
    assert output[0].startswith("ROW<`line` ROW<`number` BIGINT NOT NULL> NOT NULL, `lines` ARRAY<"), run.stderr
    assert "the annotation 'Col[Decimal]' cannot be read: there is no name 'Decimal'" in output[-1]
