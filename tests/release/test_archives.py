"""What `make dist` says of the wheel and the source distribution, and that both come out the same twice."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.build import build_archives, checksum, commit_time
from release.contents import changelog_problems, read_project, sdist_problems, wheel_problems

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution and the wheel."""
    return build_archives(tmp_path_factory.mktemp("dist"))


def change_wheel(wheel: Path, out: Path, *, without: str = "", extra: str = "", old: str = "", new: str = "") -> Path:
    """A copy of a wheel without a file, with another one, or with a changed text in its metadata."""
    path = out / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("METADATA"):
                content = content.replace(old.encode(), new.encode(), 1)
            if name != without:
                target.writestr(name, content)
        if extra:
            target.writestr(extra, "")
    return path


def test_the_archives_contain_what_is_declared(archives: tuple[Path, Path]) -> None:
    sdist, wheel = archives

    assert [*sdist_problems(sdist), *wheel_problems(wheel)] == []


def test_their_top_level_is_kdsl_its_formats_and_its_data_source(archives: tuple[Path, Path]) -> None:
    top = {name.split("/")[0] for name in zipfile.ZipFile(archives[1]).namelist()}

    assert {name for name in top if not name.endswith(".dist-info")} == {"kdsl", "kdsl_formats", "pyspark_kdsl"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"extra": "tests/test_docs.py"}, "tests/test_docs.py does not belong there"),
        ({"without": "kdsl/py.typed"}, "kdsl/py.typed is missing"),
        ({"without": "kdsl/table.py"}, "kdsl/table.py is missing"),
        ({"old": "\nVersion: ", "new": "\nVersion: 9"}, "Version is '9"),
        ({"old": "License-Expression: Apache-2.0", "new": "License-Expression: MIT"}, "License-Expression is 'MIT'"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_wrong_wheel_is_noticed(
    archives: tuple[Path, Path], tmp_path: Path, change: dict[str, str], problem: str
) -> None:
    problems = wheel_problems(change_wheel(archives[1], tmp_path, **change))

    assert any(problem in line for line in problems), problems


def test_a_wrong_source_distribution_is_noticed(archives: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / archives[0].name
    secret = tmp_path / "secret.env"
    secret.touch()
    with tarfile.open(path, "w:gz") as archive:
        archive.add(secret, "kdsl_kafka-0/secret.env")

    problems = sdist_problems(path)

    assert f"{path.name}: secret.env does not belong there" in problems
    assert f"{path.name}: LICENSE is missing" in problems


def test_twine_and_check_wheel_contents_agree(archives: tuple[Path, Path]) -> None:
    sdist, wheel = map(str, archives)
    for tool in (["twine", "check", "--strict", sdist, wheel], ["check_wheel_contents", wheel]):
        pytest.importorskip(tool[0], reason="needs the dependency group dist")
        run = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


def test_a_second_build_from_another_folder_is_the_same(archives: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (copy,) = tmp_path.iterdir()
    (tmp_path / "out").mkdir()
    for file in copy.rglob("*.py"):
        file.touch()
    shutil.copy(ROOT / ".gitignore", copy)

    _, wheel = build_archives(tmp_path / "out", copy, epoch=commit_time())

    assert checksum(wheel) == checksum(archives[1])


@pytest.mark.parametrize(
    ("heading", "released", "correct"),
    [
        ("## 0.1.0 - 2026-12-01", True, True),
        ("## 0.1.0", True, False),
        ("## Unreleased", True, False),
        ("## Unreleased", False, True),
        ("## 0.0.9 - 2026-01-01", False, False),
        ("", False, False),
    ],
)
def test_the_changelog_begins_with_the_version(heading: str, released: bool, correct: bool) -> None:
    problems = changelog_problems("0.1.0", f"# Changelog\n\n{heading}\n\n### Added\n", released=released)

    assert (problems == []) == correct


def test_the_version_stands_in_one_place() -> None:
    version = read_project()["project"]["version"]
    files = [*(ROOT / "kdsl").rglob("*.py"), *(ROOT / "formats").rglob("*.py"), ROOT / "README.md"]

    assert [path for path in files if f'"{version}"' in path.read_text(encoding="utf-8")] == []
