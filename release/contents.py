"""What the wheel and the source distribution contain: the tracked files of the declared folders, and nothing else."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def read_project(root: Path = ROOT) -> dict[str, Any]:
    """The content of pyproject.toml, the only place of the version and of what is packed."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def tracked_files(root: Path = ROOT) -> set[str]:
    """The files that git tracks, and those that it would track after ``git add``, by their paths from the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.decode()
    return {name for name in output.split("\0") if name and (root / name).is_file()}


def wheel_problems(wheel: Path, root: Path = ROOT) -> list[str]:
    """What a wheel lacks, has too much, or says wrongly about itself."""
    project = read_project(root)
    expected = {
        str(Path(package).name / Path(name).relative_to(package))
        for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        for name in tracked_files(root)
        if Path(name).is_relative_to(package)
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        folder = metadata.partition("/")[0]
        about = BytesParser().parsebytes(archive.read(metadata))
        points = archive.read(f"{folder}/entry_points.txt").decode()
    expected |= {f"{folder}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    typed = {f"{name.partition('/')[0]}/py.typed" for name in expected if name.endswith(".py")} - {
        "pyspark_kdsl/py.typed"  # Spark imports it, and nobody else
    }
    declared = project["project"]
    claims = {"Name": declared["name"], "Version": declared["version"], "License-Expression": declared["license"]}
    groups = {"console_scripts", *declared["entry-points"]}
    return [
        *_compare(wheel.name, names, expected),
        *(f"{wheel.name}: {name} is missing, so type checkers ignore the package" for name in sorted(typed - names)),
        *(f"{wheel.name}: {key} is {about[key]!r}, not {v!r}" for key, v in claims.items() if about[key] != v),
        *(f"{wheel.name}: it has no entry points {name!r}" for name in sorted(groups) if f"[{name}]" not in points),
    ]


def sdist_problems(sdist: Path, root: Path = ROOT) -> list[str]:
    """What a source distribution lacks or has too much."""
    included = read_project(root)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    expected = {name for name in tracked_files(root) if any(Path(name).is_relative_to(folder) for folder in included)}
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    return _compare(sdist.name, names, {*expected, "PKG-INFO", "pyproject.toml", ".gitignore"})


def _compare(archive: str, names: set[str], expected: set[str]) -> list[str]:
    return [
        *(f"{archive}: {name} is missing" for name in sorted(expected - names)),
        *(f"{archive}: {name} does not belong there" for name in sorted(names - expected)),
    ]


def changelog_problems(version: str, text: str, *, released: bool) -> list[str]:
    """Whether the changelog begins with the section of a version.

    Args:
        version: The version that is built.
        text: The changelog.
        released: Whether the section must have a date; without a release it may be called ``Unreleased``.
    """
    first = next((line for line in text.splitlines() if line.startswith("## ")), "")
    heading, _, date = first.removeprefix("## ").partition(" - ")
    if heading == version and len(date.split("-")) == 3:
        return []
    if not released and (heading in (version, "Unreleased")):
        return []
    return [f"CHANGELOG.md begins with {first!r}; before a release write '## {version} - YYYY-MM-DD'"]
