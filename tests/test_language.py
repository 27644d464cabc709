"""How code, messages and pages are written: plain English, verbs as function names, telling variable names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdsl.resolve import RULES
from tests.source_trees import modules, read, walk

ROOT = Path(__file__).parents[1]
FOLDERS = ("kdsl", "formats", "docs", "bench", "examples", "tests")
# This file lists the words that others must not use.
EXEMPT = {Path(__file__)}


def files(folder: str) -> list[Path]:
    """The Python files and pages of a folder; those at the top of the project for an empty name."""
    if not folder:
        return [ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile")]
    return sorted({path for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)} - EXEMPT)


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
    r"\bmade again\b|\b(?:made|read|declared|taken) anew\b": "write 'created again', or 'again'",
    r"\blooked at by\b|\bnobody looks\b": "write 'ignored' or 'checked by'",
    r"\bsuch a one\b|\bof its own accord\b": "use fewer words",
    r"\bseed \d{3}\b|\bdesign \d\b|\bseeds?/": "a reader cannot open it: link to public documentation or docs/rules.md",
}
MAX_MEANINGS = 4
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


# One pass over a text finds out whether any phrase matches; only then does each phrase look for itself.
COMPILED = [(re.compile(phrase, re.IGNORECASE), phrase, advice) for phrase, advice in PHRASES.items()]
ANY_PHRASE = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
# Comments, and more: strings that contain a "#". Only files with a phrase in one of these are read token by token.
MAYBE_COMMENTS = re.compile(r"#.*(?:\n[ \t]*#.*)*")
NEXT_LINE = re.compile(r"\n[ \t]*[#: ]*")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.|#+|\||>)\s")


def check_phrases(number: int, text: str) -> Iterator[str]:
    if ANY_PHRASE.search(text):
        yield from (f"{number}: {phrase!r}: {advice}" for regex, phrase, advice in COMPILED if regex.search(text))


def check_code(source: str, *, docstrings_only: bool = False) -> Iterator[str]:
    """The mistakes of a Python file: in its strings and comments, in function names, in names of variables.

    Args:
        source: The text of the file.
        docstrings_only: Of strings check only docstrings: the other ones of a test are data, or repeat messages.
    """
    nodes = walk(ast.parse(source))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for part in walk(*(node for node in nodes if isinstance(node, ast.JoinedStr)))}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            if docstrings_only and id(node) not in docstrings:
                continue
            for text in join_parts(node):
                yield from check_phrases(node.lineno, " ".join(text.split()))
        elif isinstance(node, ast.Constant):
            if docstrings_only and id(node) not in docstrings:
                continue
            if isinstance(node.value, str) and id(node) not in parts:
                yield from check_phrases(node.lineno, " ".join(node.value.split()))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from check_phrases(node.lineno, node.name.replace("_", " "))
            if is_participle(node) and node.name not in PARTICIPLES:
                yield f"{node.lineno}: the function {node.name} is not named by a verb"
        elif isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            name = node.arg if isinstance(node, ast.arg) else node.id
            if name.strip("_") in VARIABLES:
                yield f"{node.lineno}: the variable {name} does not say what it holds"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.strip("_") in VARIABLES:
            yield f"{node.lineno}: the attribute {node.attr} does not say what it holds"
    yield from check_comments(source)


def test_rules_are_named_by_what_they_check() -> None:
    assert [rule.__name__ for rule in RULES if not rule.__name__.startswith("check_")] == []


def test_a_name_of_a_class_has_few_meanings() -> None:
    """One class for each format may have the same name; other classes get names that say more."""
    classes = Counter(
        node.name
        for path in modules().values()
        for node in ast.walk(ast.parse(read(path)))
        if isinstance(node, ast.ClassDef)
    )

    assert [name for name, count in classes.items() if count > MAX_MEANINGS] == []


def join_parts(node: ast.JoinedStr) -> list[str]:
    """The texts that an f-string may have: with each alternative of its conditional expressions."""
    texts = [""]
    for part in node.values:
        match part:
            case ast.Constant(value=str(value)):
                choices = [value]
            case ast.FormattedValue(
                value=ast.IfExp(body=ast.Constant(value=str(first)), orelse=ast.Constant(value=str(second)))
            ):
                choices = [first, second]
            case _:
                choices = ["…"]
        texts = [text + choice for text in texts for choice in choices][:16]
    return texts


def check_comments(source: str) -> Iterator[str]:
    """The phrases of comments; those on consecutive lines are read as one."""
    if not any(ANY_PHRASE.search(NEXT_LINE.sub(" ", text)) for text in MAYBE_COMMENTS.findall(source)):
        return
    lines: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            if row != last + 1 or token.line[:column].strip():
                yield from check_phrases(start, " ".join(lines))
                lines, start = [], row
            lines.append(token.string.lstrip("#: "))
            last = row
    yield from check_phrases(start, " ".join(lines))


def check_page(source: str) -> Iterator[str]:
    """The phrases of a page: of each paragraph, list item or row of a table as a whole."""
    lines: list[str] = []
    start = 1
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if not line.strip() or LIST_ITEM.match(line):
            yield from check_phrases(start, " ".join(lines))
            lines, start = [], number
        lines.append(line.strip())


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_the_language_of(folder: str) -> None:
    mistakes = [f"{path.relative_to(ROOT)}:{mistake}" for path in files(folder) for mistake in check_file(path)]

    assert not mistakes, "\n".join(mistakes)


def check_file(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return check_code(source, docstrings_only=path.is_relative_to(ROOT / "tests"))
    return check_page(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""Told what happens."""',
        "f\"which {'is' if one else 'are'} no column\"",
        "f'what it {name} cannot be' f' had'",
        "x = 1  # a\n# a list\n# of which one is missing",
        "def test_mistakes_are_told(): pass",
        "def written(): pass",
        "found = 1",
        "self.given = 1",
    ],
)
def test_mistakes_in_code_are_detected(source: str) -> None:
    assert list(check_code(source))


def test_a_phrase_across_the_lines_of_a_page_is_detected() -> None:
    assert list(check_page("# Title\n\nA list of\nwhich one is missing.\n"))
    assert not list(check_page("- the last of\n- which one?\n"))


def is_participle(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is named by what was done: properties and fixtures may be, since they name a value."""
    decorators = [ast.unparse(decorator).partition("(")[0].split(".")[-1] for decorator in node.decorator_list]
    if {*decorators} & {"property", "cached_property", "setter", "fixture"}:
        return False
    first = node.name.strip("_").split("_")[0]
    return first in IRREGULAR or (len(first) > 4 and first.endswith("ed") and not first.endswith(("eed", "embed")))
