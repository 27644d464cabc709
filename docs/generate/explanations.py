"""Writes ``kdsl/explanations/codes.json``, what codes and classes of errors mean, from tests and docstrings."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir

import attrs

import kdsl.explanations
from kdsl.errors import KdslError, Problem
from kdsl.explanations import Example, Explanation, Text
from kdsl.sql_tokens import tokenize
from tests.advice.cases import Called, Case
from tests.advice.source_examples import Examples, read_examples
from tests.source_trees import modules

CODES = Path(kdsl.explanations.__file__).with_name("codes.json")
CASES = Path(import_module("tests.advice").__path__[0])
_MODULES = {
    "tables": ("tables",),
    "formats": ("formats",),
    "programs": ("programs", "files"),
    "sql": ("statements", "queries"),
    "settings": ("settings",),
    "operations": ("operations", "written_rows"),
    "ingestions": ("ingestions",),
}
"""For each page of `AREAS` but that of errors, the modules of cases in tests/advice."""
MOST = 3
"""How many examples a code has at most; they have different messages."""
_SEPARATOR = "# next\n"
_LINE = 100
"""The length of a line of an example."""
_SQL_LINE = 80
"""The length of a statement in one line; shorter, so that the lines of a statement and its correction are the same."""


def write_explanations() -> Path:
    """Write the file that the package reads."""
    CODES.write_text(explanations_json(), encoding="utf-8")
    return CODES


def explanations_json() -> str:
    """What the file must contain."""
    by_code = sorted({**_explain_errors(), **_explain_problems()}.items())
    documents = {
        code: attrs.asdict(explanation, filter=lambda _, value: value not in ("", (), None))
        for code, explanation in by_code
    }
    return json.dumps(documents, indent=1, ensure_ascii=False) + "\n"


def _explain_problems() -> dict[str, Explanation]:
    """The explanations of the codes of problems, from their cases; the page is that of most of them."""
    read = read_examples(CASES)
    by_code: dict[str, list[tuple[str, Case]]] = defaultdict(list)
    for area, names in _MODULES.items():
        for name in names:
            for case in import_module(f"tests.advice.test_{name}").CASES:
                by_code[case.code].append((area, case))
    cases = [case for several in by_code.values() for _, case in several]
    shown = dict(zip(map(id, cases), _format(_show_all(cases, read)), strict=True))
    return {
        code: _explain_problem(
            Counter(area for area, _ in several).most_common(1)[0][0],
            [(problem, *shown[id(case)]) for _, case in several for problem in _find_problems(case)],
        )
        for code, several in by_code.items()
    }


def _explain_problem(area: str, shown: Sequence[tuple[Problem, Text | None, Text | None]]) -> Explanation:
    """The explanation of a code from the problems of its cases, each with what has it and what follows the advice."""
    examples = [Example(_hide_machine(p.message), _hide_machine(p.fix), wrong, right) for p, wrong, right in shown]
    severity = tuple(sorted({problem.severity for problem, _, _ in shown}))
    return Explanation(area, severity, examples=tuple(_choose(examples)))


def _show_all(cases: Iterable[Case], read: Examples) -> Iterator[tuple[Text | None, Text | None]]:
    """What users write in each case; that of a call is in the source, in the order of the cases."""
    cases = list(cases)
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        key = (case.code, case.advice)
        written = read.get(key, [])
        shown = case.show()
        if shown == (None, None) and counts[key] < len(written):
            shown = written[counts[key]]
        counts[key] += 1
        yield shown


def _format(pairs: Iterable[tuple[Text | None, Text | None]]) -> list[tuple[Text | None, Text | None]]:
    """Format what is Python as the project's code; one process formats all."""
    texts = [
        None if text is None or not text.text.strip() else attrs.evolve(text, text=text.text.strip())
        for pair in pairs
        for text in pair
    ]
    python = [i for i, text in enumerate(texts) if text is not None and text.language == "python"]
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--line-length",
        str(_LINE),
        "--stdin-filename",
        "examples.py",
        "-",
    ]
    source = _SEPARATOR.join(_wrap(texts[i].text) for i in python)  # type: ignore[union-attr]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    formatted = [text.strip() for text in done.stdout.split(_SEPARATOR)]
    for i, text in zip(python, formatted, strict=True):
        texts[i] = Text(text, "python")
    texts = [
        Text(format_sql(text.text), "sql") if text is not None and text.language == "sql" else text for text in texts
    ]
    return list(zip(texts[::2], texts[1::2], strict=True))


def format_sql(script: str) -> str:
    """A script in one line with a line for each statement, and for each column and option of a long statement."""
    if "\n" in script:
        return script
    tokens = tokenize(script)[:-1]
    statements, start = [], 0
    for token in tokens:
        if token.text == ";":
            statements.append(script[start : token.end].strip())
            start = token.end
    statements.append(script[start:].strip())
    return "\n".join(map(_break_statement, filter(None, statements)))


def _break_statement(statement: str) -> str:
    """A statement with the columns and options of a long ``CREATE`` in lines of their own."""
    if len(statement) <= _SQL_LINE or not statement.upper().startswith("CREATE "):
        return statement
    lines, start, depth, broken = [""], 0, 0, -1
    previous = None
    for token in tokenize(statement)[:-1]:
        lines[-1] += statement[start : token.end] if lines[-1].strip() else statement[start : token.end].lstrip()
        start = token.end
        if token.text == "(":
            depth += 1
            is_first = depth == 1 and broken == -1 and "TABLE" in statement[: token.start].upper().split()
            if (is_first or (previous is not None and previous.upper == "WITH")) and " AS TABLE " not in lines[-1]:
                broken = depth
                lines.append("  ")
        elif token.text == ")":
            if depth == broken:
                lines[-1] = lines[-1].removesuffix(")").rstrip()
                lines.append(")")
                broken = 0
            depth -= 1
        elif token.text == "," and depth == broken:
            lines.append("  ")
        previous = token
    return "\n".join([*lines[:-1], lines[-1] + statement[start:]])


def _wrap(text: str) -> str:
    """Put a long expression in parentheses, so that each call of a chain gets its own line."""
    return f"({text})\n" if "\n" not in text and len(text) > _LINE else f"{text}\n"


def _find_problems(case: Case) -> list[Problem]:
    """The problems of a case with its code and its advice; without Spark, which only some cases need."""
    if isinstance(case, Called) and case.message:
        return [Problem(case.code, case.message, case.advice)]
    return [p for p in case.find_problems() if p.code == case.code and case.advice in p.fix]


def _choose(examples: Iterable[Example]) -> Iterable[Example]:
    """The first example of each different message, those that can be shown first."""
    chosen: dict[str, Example] = {}
    for example in sorted(examples, key=lambda example: example.wrong is None):
        chosen.setdefault(re.sub(r"'[^']*'|\d+", "", example.message), example)
    return list(chosen.values())[:MOST]


def _hide_machine(text: str) -> str:
    """A message without the folders of the machine."""
    text = re.sub(rf"{re.escape(gettempdir())}/[^/\s]+/", "", text)
    return text.replace(f"{CASES.parents[1]}/", "")


def _explain_errors() -> Mapping[str, Explanation]:
    """The explanations of the classes of errors: their docstrings, which say also what they are kinds of."""
    for name, path in modules().items():
        if re.search(r"^class \w+Error\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            import_module(name)
    return {
        kind.__name__: _explain_error(kind)
        for kind in _subclasses(KdslError)
        if kind.__module__ in modules() and getattr(sys.modules[kind.__module__], kind.__name__, None) is kind
        if not kind.__name__.startswith("_")
    }


def _explain_error(kind: type[KdslError]) -> Explanation:
    parents = [parent.__name__ for parent in kind.__bases__ if issubclass(parent, KdslError)]
    place = f"`{kind.__module__}.{kind.__name__}`"
    meaning = re.split(r"\n\n(?:Args|Attributes|Raises):\n", inspect.getdoc(kind) or "")[0]
    return Explanation("errors", meaning=f"{place}, a `{'` and a `'.join(parents)}`.\n\n{meaning}")


def _subclasses(kind: type[KdslError]) -> Iterator[type[KdslError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)
