"""Where the parts of a table class stand."""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kdsl import Col, KafkaTable
from kdsl.errors import Where
from kdsl.types import class_source

TABLES = '''
from kdsl import Col, KafkaTable, col, computed

def marked(cls):
    return cls

class First(
    KafkaTable,
    topic="a",
    value="json",
):
    """About it."""

    a: Col[int]
    "What a is."
    b: Col[str] = col(
        default="x",
    )

    # no comment of c
    c: Col[int]
    d: Col[int]
    """
    What d is.
      And more.
    """

    @computed
    def total(self) -> int:
        """What total is."""
        return self.a

def make():
    if True:
        try:
            @marked
            @marked
            class Inner(KafkaTable):
                a: Col[int]
                """What the inner a is."""
        finally:
            pass
    return Inner

class Base(KafkaTable):
    def __init_subclass__(cls, **given):
        super().__init_subclass__(**given)

class Derived(Base):
    a: Col[int]
'''


@pytest.fixture
def module(tmp_path: Path) -> dict[str, Any]:
    """The module of the tables above, in a file."""
    path = tmp_path / "tables.py"
    path.write_text(TABLES, encoding="utf-8")
    results: dict[str, Any] = {"__name__": "tables"}
    exec(compile(TABLES, str(path), "exec"), results)
    return results | {"path": path}


def line(text: str, nth: int = 0) -> int:
    """The line of the nth occurrence of a string in the module."""
    return [i for i, item in enumerate(TABLES.splitlines(), 1) if item.strip().startswith(text)][nth]


def test_every_part_has_its_line(module: dict[str, Any]) -> None:
    table = module["First"].definition()

    path = str(module["path"])
    assert table.where == Where("First", None, path, line("class First"))
    assert [c.where for c in table.columns] == [
        Where("First", "a", path, line("a: ")),
        Where("First", "b", path, line("b: ")),
        Where("First", "c", path, line("c: ")),
        Where("First", "d", path, line("d: ")),
        Where("First", "total", path, line("def total")),
    ]
    assert table.option_locations["topic"] == Where(file=path, line=line('topic="a"'))
    assert table.option_locations["value.format"] == Where(file=path, line=line('value="json"'))


def test_strings_under_columns_are_their_comments(module: dict[str, Any]) -> None:
    table = module["First"].definition()

    assert table.comment == "About it."
    assert [c.comment for c in table.columns] == ["What a is.", None, None, "What d is.\n  And more.", "What total is."]


def test_a_decorated_class_inside_of_blocks_is_found(module: dict[str, Any]) -> None:
    table = module["make"]().definition()

    assert table.where.line == line("class Inner")
    assert (table.columns[0].where.line, table.columns[0].comment) == (line("a: ", 1), "What the inner a is.")


def test_a_base_with_its_own_hook_does_not_hide_the_location(module: dict[str, Any]) -> None:
    assert module["Derived"].definition().where.line == line("class Derived")


def test_a_file_is_parsed_once(module: dict[str, Any]) -> None:
    path = str(module["path"])
    module["First"].definition()
    parsed = class_source._parsed[path]

    module["Base"].definition()
    module["Derived"].definition()

    assert class_source._parsed[path] is parsed


def test_a_file_that_changed_since_yields_the_line_of_the_class(module: dict[str, Any]) -> None:
    module["path"].write_text("class First(:\n", encoding="utf-8")
    linecache.checkcache()

    table = module["First"].definition()

    assert (table.where.line, table.columns[1].where.line) == (line("class First"), line("class First"))
    assert table.columns[0].comment is None
    assert table.columns[4].where.line == line("@computed")


def test_without_a_source_the_line_of_the_class_is_known() -> None:
    results: dict[str, Any] = {"KafkaTable": KafkaTable, "Col": Col, "__name__": "nowhere"}
    exec(compile("\n\nclass T(KafkaTable):\n    a: Col[int]", "<cell 5>", "exec"), results)

    definition = results["T"].definition()

    assert definition.columns[0].where == Where("T", "a", "<cell 5>", 3)


def test_a_cell_of_a_notebook_has_lines() -> None:
    text = "class T(KafkaTable):\n    a: Col[int]\n    b: Col[int]\n    'What b is.'\n"
    linecache.cache["<cell 6>"] = (len(text), None, text.splitlines(keepends=True), "<cell 6>")
    results: dict[str, Any] = {"KafkaTable": KafkaTable, "Col": Col, "__name__": "notebook"}
    exec(compile(text, "<cell 6>", "exec"), results)

    definition = results["T"].definition()

    assert [(c.where.line, c.comment) for c in definition.columns] == [(2, None), (3, "What b is.")]


def test_tables_can_be_declared_at_the_prompt() -> None:
    text = textwrap.dedent(
        """\
        from kdsl import *
        class T(KafkaTable, topic="t", value="json"):
            a: Col[int]

        print(T.definition().where, T.explain().splitlines()[0], repr(T.a))
        """
    )
    done = subprocess.run([sys.executable, "-i", "-q"], input=text, capture_output=True, text=True, check=True)

    shown = re.sub(r"<stdin-\d+>", "<stdin>", done.stdout)  # Python 3.13 and later number what is typed
    assert shown.splitlines() == ["T (<stdin>:1) Read T T.a"]
