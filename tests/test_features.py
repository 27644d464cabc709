"""The list of features: each is on the page that it names; tests/test_docs.py shows that all public names are on it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import kdsl.errors
from docs.generate.features import FEATURES, Feature, code_of, reference_of
from kdsl.errors import KdslError
from kdsl.explanations import explanations
from kdsl.flink_sql.conditions import functions
from kdsl.options import Options
from kdsl.plugins import OWN

DOCS = Path(__file__).parents[1] / "docs"


def read_code(page: str) -> str:
    """What stands in code on a page: between back-quotes, in blocks, and in tables of options."""
    text = (DOCS / page.partition("#")[0]).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```.*?^ *```$", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join(blocks + inline)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.title)
def test_the_page_of_a_feature_has_its_names(feature: Feature) -> None:
    assert [name for name in feature.names if not is_named(name, feature.page)] == []


def is_named(name: str, page: str) -> bool:
    """Whether a page has a name in code, or links to the page that a format, a connector or the like has for itself."""
    text = (DOCS / page.partition("#")[0]).read_text(encoding="utf-8")
    reference = reference_of(name)
    if reference is not None and f"({reference})" in text:
        return True
    return re.search(rf"(?<!\w){re.escape(code_of(name))}(?!\w)", read_code(page)) is not None


def test_a_name_that_a_page_does_not_have_is_noticed() -> None:
    assert not is_named("Batches", "guide.md")
    assert is_named("KafkaTable", "guide.md")
    assert is_named("format csv", "guide.md")


def test_every_option_stands_on_a_page() -> None:
    for place in (place for group in OWN.values() for place in group.values()):
        import_module(place.partition(":")[0])
    code = "\n".join(read_code(path.relative_to(DOCS).as_posix()) for path in DOCS.rglob("*.md"))
    keys = {option.metadata["key"] for group in option_groups(Options) for option in group.declarations()}

    assert len(keys) > 190
    assert [key for key in sorted(keys) if not re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", code)] == []


def option_groups(base: type[Options]) -> set[type[Options]]:
    """The groups of options that kdsl declares below a class."""
    direct = {group for group in base.__subclasses__() if group.__module__.startswith(("kdsl.", "kdsl_formats."))}
    return direct.union(*(option_groups(group) for group in direct))


def test_every_function_of_row_rules_stands_on_their_page() -> None:
    code = read_code("row-rules.md")

    assert [name for name in functions.FUNCTIONS if not re.search(rf"\b{name}\b", code)] == []


def test_every_error_has_a_code_and_so_a_place_on_the_pages_of_problems() -> None:
    """tests/test_explanations.py shows the same of the codes of problems."""
    errors = {
        name for name, value in vars(kdsl.errors).items() if isinstance(value, type) and issubclass(value, KdslError)
    }

    assert errors - {*explanations(), "KdslError"} == set()


def test_every_variable_of_the_environment_stands_on_a_page() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "kdsl").rglob("*.py"))
    names = set(re.findall(r"KDSL_[A-Z_]+", code)) - {"KDSL_STORE"}  # passed to keytool

    assert sorted(name for name in names if name not in text) == []
