"""Every problem has a test that follows its advice.

A problem with a new code needs a case in the list `CASES` of a module of this folder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from tests.advice.cases import Case
from tests.source_trees import modules, read, walk

FOLDER = Path(__file__).parent
RAISED_BY = frozenset({
    "Problem", "problem", "_problem", "add_problem", "_add_problem", "add_error", "add_warning", "add", "_add", "fail",
    "WrongOption", "_create_problem", "_create_side_problem", "_Mistake", "_Refusal", "_StatementError",
})  # fmt: skip
_SIDES = {"problem": ("key", "value"), "_create_side_problem": ("startup", "bounded")}
"""Functions with which a code is a side and a word: columns of the key or the value, the start or the end of a read."""
_CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+")
_WORD = re.compile(r"[a-z]+")


def find_codes() -> frozenset[str]:
    """The codes of problems in the source, and those of parts of streams; refusals of tables have their own test."""
    from kdsl.scripts.stream_checks import _REASONS

    nodes = [node for path in modules().values() for node in walk(ast.parse(read(path)))]
    constants = {
        target.id: node.value.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    }
    codes = {f"stream-{kind.replace(' ', '-')}" for kind in _REASONS}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in RAISED_BY:
            codes |= find_codes_of_call(node, name, constants)
    return frozenset(codes)


def find_codes_of_call(call: ast.Call, name: str, constants: Mapping[str, object]) -> set[str]:
    """The codes in a call: its keyword, its first argument, or the second one after the table or the declaration."""
    words: set[str] = set()
    for argument in [*(keyword.value for keyword in call.keywords if keyword.arg == "code"), *call.args[:2]]:
        parts = walk(argument)
        values: list[object] = [part.value for part in parts if isinstance(part, ast.Constant)]
        values += [constants.get(part.id) for part in parts if isinstance(part, ast.Name)]
        texts = [value for value in values if isinstance(value, str)]
        if isinstance(argument, ast.JoinedStr) and ast.unparse(argument.values[0]) == "{side}":
            return {f"{side}{text}" for side in _SIDES["problem"] for text in texts if _CODE.fullmatch(f"{side}{text}")}
        if codes := {text for text in texts if _CODE.fullmatch(text)}:
            return codes
        if isinstance(argument, ast.Constant) and len(call.args) > 2 and texts and _WORD.fullmatch(texts[0]):
            words = words or {texts[0]}
    return {f"{side}-{word}" for side in _SIDES[name] for word in words} if name == "_create_side_problem" else words


def find_cases() -> list[Case]:
    """The cases of all modules of this folder."""
    names = sorted(path.stem for path in FOLDER.glob("test_*.py"))
    return [case for name in names for case in getattr(import_module(f"tests.advice.{name}"), "CASES", ())]


def test_every_problem_has_a_case_that_follows_its_advice() -> None:
    followed = {case.code for case in find_cases()}

    assert len(find_codes()) > 200
    assert sorted(find_codes() - followed) == [], "a new code: add a case that follows its advice"
    assert sorted(followed - find_codes()) == [], "the code is gone: remove its case"
