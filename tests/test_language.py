"""How code, messages and pages are written: plain English, verbs as function names, telling variable names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "kdsl").rglob("*.py"), *(ROOT / "formats").rglob("*.py"), *(ROOT / "docs").rglob("*.py")])
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# docs/moved.md lists names as they were.
PAGES = sorted([ROOT / "README.md", *({*(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/moved.md"})])

PHRASES = {
    r"cannot be had": "say what could not be fetched, and from where",
    r"for want of": "write 'because … is missing'",
    r"\bfor ever\b": "write 'forever', 'without end' or what really happens",
    r"\bso many\b": "say how many",
    r"\bis none of\b": "write 'is not one of'",
    r"\bread over\b": "write 'skipped'",
    r"\btold\b": "write 'reported', 'counted' or 'logged'",
    r"\bworked out\b": "write 'computed'",
    r"\bof which\b": "start a new sentence",
    r"\bhas not(?=[,.;:)])|which it has not": "write 'does not have'",
    r"(?<!there )(?<!There )\b(?:is|are) no (?!longer\b|more than\b|less\b|different\b|better\b|worse\b)": (
        "write 'is not a …'"
    ),
    r"\ba text\b|\btexts\b": "write 'a string', 'strings'",
    r"\ba whole number\b": "write 'an integer'",
    r"\bhangs on\b": "write 'depends on'",
    r"\bbut for\b": "write 'except'",
    r"\bold news\b|\bgiven up\b": "write 'outdated', 'abandoned'",
    r"\bseed \d{3}\b|\bdesign \d\b|\bseeds?/": "a reader cannot open it: link to public documentation or docs/rules.md",
}
VARIABLES = {"found", "made", "given", "told", "kept", "said"}
IRREGULAR = {
    *("told", "shown", "made", "kept", "held", "written", "taken", "begun", "given", "said"),
    *(
        "known",
        "found",
        "sent",
        "lost",
        "left",
        "built",
        "bound",
        "met",
        "got",
        "spelled",
        "spelt",
        "meant",
        "drawn",
        "chosen",
    ),
}
# Functions whose names are participles for a reason.
PARTICIPLES: dict[str, str] = {
    "aliased": "as in SQLAlchemy, a view of a class and not an action",
    "computed": "declares a column, as property() declares a property",
    "committed": "the name of Consumer.committed() of Kafka's clients",
    "onQueryStarted": "a method of Spark's StreamingQueryListener",
    "onQueryTerminated": "a method of Spark's StreamingQueryListener",
    "committed_offsets": "the name of Flink's OffsetsInitializer.committedOffsets()",
}


# One pass over a line finds out whether any phrase matches; only then does each phrase look for itself.
COMPILED = [(re.compile(phrase), phrase, advice) for phrase, advice in PHRASES.items()]
ANY_PHRASE = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES))


def check_phrases(number: int, line: str) -> Iterator[str]:
    if ANY_PHRASE.search(line):
        yield from (f"{number}: {phrase!r}: {advice}" for regex, phrase, advice in COMPILED if regex.search(line))


def check_code(source: str) -> Iterator[str]:
    """The mistakes of a Python file: in its strings and comments, in function names, in names of variables."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from check_phrases(node.lineno, " ".join(node.value.split()))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_participle(node) and node.name not in PARTICIPLES:
                yield f"{node.lineno}: the function {node.name} is not named by a verb"
        elif isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            name = node.arg if isinstance(node, ast.arg) else node.id
            if name.strip("_") in VARIABLES:
                yield f"{node.lineno}: the variable {name} does not say what it holds"
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line:
            yield from check_phrases(number, line.partition("#")[2])


@pytest.mark.parametrize("path", [*SOURCES, *EXAMPLES, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_language_of(path: Path) -> None:
    source = path.read_text(encoding="utf-8")

    if path.suffix == ".py":
        mistakes = list(check_code(source))
    else:
        mistakes = [
            mistake for number, line in enumerate(source.splitlines(), 1) for mistake in check_phrases(number, line)
        ]

    assert not mistakes, f"{path.relative_to(ROOT)}:\n" + "\n".join(mistakes)


def is_participle(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is named by what was done: properties may be, since they do nothing."""
    if any(ast.unparse(d).split(".")[-1] in ("property", "cached_property", "setter") for d in node.decorator_list):
        return False
    first = node.name.strip("_").split("_")[0]
    return first in IRREGULAR or (len(first) > 4 and first.endswith("ed") and not first.endswith(("eed", "embed")))
