"""On PyPI ``kdsl`` is another project: its files among those of this package are noticed and named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kdsl.distribution import NAME, require_own_files

ROOT = Path(__file__).parents[1]


def test_the_name_is_that_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["name"] == NAME
    assert "kdsl-kafka[" in "".join(project["optional-dependencies"]["all"])


def test_another_distribution_with_the_same_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "kdsl").mkdir()
    (tmp_path / "kdsl-1.22.4.dist-info").mkdir()

    with pytest.raises(ImportError) as raised:
        require_own_files(tmp_path / "kdsl")

    assert str(raised.value) == (
        f"the distribution 'kdsl' 1.22.4, another project, is installed in {tmp_path}, too, and its files and those of "
        "'kdsl-kafka' replace each other; run: pip uninstall --yes kdsl kdsl-kafka, then install kdsl-kafka again "
        "(docs/install.md)"
    )


@pytest.mark.parametrize("name", ["kdsl_kafka-0.1.0.dist-info", "kdsl_tools-1.0.dist-info", "kdsl"])
def test_the_own_distribution_and_those_of_other_packages_are_accepted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    require_own_files(tmp_path / "kdsl")
