"""Builds and checks what is published: ``make dist``, or before a release ``make dist RELEASE=1``.

Into ``dist/`` go the wheel, the source distribution, a software bill of materials (CycloneDX) of the wheel with all its
extras, the list of the dependencies' licences, and SHA256SUMS. Any problem ends the command with status 1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from release.build import build_archives, checksum, commit_time
from release.contents import ROOT, changelog_problems, read_project, sdist_problems, wheel_problems
from release.licences import licence_problems, read_licences

DIST = ROOT / "dist"
SMOKE = """
import kdsl
class Orders(kdsl.KafkaTable, topic="orders", value=kdsl.Json(), startup="earliest"):
    order_id: kdsl.Col[str]
assert kdsl.Table(Orders.definition()).read_plan().output.names == ("order_id",)
print("kdsl", kdsl.__version__)
"""


def run_tool(*command: str, **environment: str) -> list[str]:
    """Run a command and return its output as a problem if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return [f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"] if done.returncode else []


def check_archives(sdist: Path, wheel: Path) -> Iterator[str]:
    """Yield what twine, check-wheel-contents and kdsl's own lists say of the archives; build them twice."""
    yield from run_tool(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
    yield from run_tool(sys.executable, "-m", "check_wheel_contents", str(wheel))
    yield from wheel_problems(wheel)
    yield from sdist_problems(sdist)
    with tempfile.TemporaryDirectory() as again:
        for first, second in zip((sdist, wheel), build_archives(Path(again)), strict=True):
            if checksum(first) != checksum(second):
                yield f"{first.name}: a second build of the same files differs, so nobody can verify the first"


def check_installation(wheel: Path, bill: Path) -> Iterator[str]:
    """Install the wheel with all extras into an empty environment; write its bill of materials and its licences."""
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder, "bin", "python"))
        for command in (
            (sys.executable, "-m", "venv", folder),
            (python, "-m", "pip", "install", "--quiet", f"{wheel}[all]"),
            (python, "-m", "pip", "check"),
            (python, "-c", SMOKE),
            (python, "-m", "kdsl", "--version"),
            (python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"),
        ):
            problems = run_tool(*command)
            yield from problems
            if problems:
                return
        yield from run_tool(
            *(sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(ROOT / "pyproject.toml")),
            *("--mc-type", "library", "--output-reproducible", "--output-file", str(bill), python),
            SOURCE_DATE_EPOCH=commit_time(),
        )
    name = read_project()["project"]["name"]
    licences = read_licences(json.loads(bill.read_text(encoding="utf-8")))
    licences.pop(name, None)
    lines = [f"| {package} | {licence or 'unknown'} |" for package, licence in sorted(licences.items())]
    table = "\n".join(
        [f"# Licences of the dependencies of {name}", "", "| package | licence |", "| --- | --- |", *lines]
    )
    (DIST / "LICENCES.md").write_text(f"{table}\n", encoding="utf-8")
    yield from licence_problems(licences)


def main(*, released: bool) -> int:
    """Build, check, and print every problem; the status of the command."""
    version = read_project()["project"]["version"]
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist, wheel = build_archives(DIST)
    bill = DIST / f"{sdist.name.removesuffix('.tar.gz')}.cdx.json"
    problems = [
        *changelog_problems(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), released=released),
        *check_archives(sdist, wheel),
        *check_installation(wheel, bill),
    ]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if problems:
        sys.stderr.write(f"dist: {len(problems)} problems, nothing may be published\n")
        return 1
    files = sorted(path for path in DIST.iterdir() if path.is_file())
    sums = "".join(f"{checksum(path)}  {path.name}\n" for path in files)
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    sys.stdout.write(sums)
    return 0


sys.exit(main(released=bool(os.environ.get("RELEASE"))))
