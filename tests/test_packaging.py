"""The wheel that users install holds its packages with their type marks, and nothing else at its top."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from the source distribution as ``pip install`` would."""
    folder = tmp_path_factory.mktemp("dist")
    build = [
        sys.executable,
        "-c",
        "import sys; from hatchling.build import *; print(globals()[sys.argv[1]](sys.argv[2]))",
    ]
    subprocess.run([*build, "build_sdist", str(folder)], cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    subprocess.run([*build, "build_wheel", str(folder)], cwd=source, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_its_top_level_is_kdsl_its_formats_and_its_data_source(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}

    assert {name for name in top if not name.endswith(".dist-info")} == {"kdsl", "kdsl_formats", "pyspark_kdsl"}


def test_it_is_typed(wheel: zipfile.ZipFile) -> None:
    assert {"kdsl/py.typed", "kdsl_formats/py.typed"} <= set(wheel.namelist())


def test_it_does_not_contain_the_generator_of_the_documentation(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if "generate" in name or name.endswith("/docs.py")] == []


def test_it_contains_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    tracked = [
        path.relative_to(root).as_posix()
        for root, package in ((ROOT, "kdsl"), (ROOT / "formats", "kdsl_formats"), (ROOT / "formats", "pyspark_kdsl"))
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]

    assert [name for name in tracked if name not in wheel.namelist()] == []
