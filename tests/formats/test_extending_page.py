"""The format that docs/extending.md writes, in a package outside of the checkout: its contract and its use."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.page_files import RUN_FILES, count_passed, install_package, other_code, run_python, run_tests, section_of

SECTION = section_of("extending.md", "A format")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder with the installed package."""
    install_package(SECTION, tmp_path)
    return tmp_path


def test_the_format_passes_its_contract(package: Path) -> None:
    assert count_passed(run_tests(package, "test_pairs.py")) > 60


@pytest.mark.parametrize(
    ("right", "wrong", "failure"),
    [
        ("list(bad))\n        structs", "[])\n        structs", "test_a_bad_message_is_reported_by_its_index"),
        ('decides="is_lenient",', "", "no option of the format decides is_lenient"),
        ("return Observer(self)", "return None", "the format declares ingests, and has no observer"),
        ("return True  # columns", "raise ValueError  # columns", "test_a_prunable_format"),
    ],
)
def test_the_contract_finds_a_fault(package: Path, right: str, wrong: str, failure: str) -> None:
    code = (package / "kdsl_pairs.py").read_text()
    assert right in code
    (package / "kdsl_pairs.py").write_text(code.replace(right, wrong))

    assert failure in run_tests(package, "test_pairs.py", status=1)


def test_the_format_works_in_a_table_an_ingestion_and_a_script(
    package: Path, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic("clicks")
    for name, language in (("table.py", "python"), ("ingestion.yaml", "yaml"), ("script.sql", "sql")):
        code = other_code(SECTION, language).replace("localhost:9092", kdsl_kafka.bootstrap_servers)
        (package / name).write_text(code.replace('"clicks"', f'"{topic}"').replace("topic: clicks", f"topic: {topic}")
                                    .replace("'clicks'", f"'{topic}'"))  # fmt: skip
    (package / "program.py").write_text(RUN_FILES)
    output = run_python(package, "program.py")

    assert "|  7| Ann|" in output
    assert "|  8|NULL|" in output
    assert output.count("Ann") == 2, "of the table and of the ingestion"
    assert sorted(line for line in output.splitlines() if line.startswith("+I[10")) == ["+I[107, ANN]", "+I[108, null]"]
