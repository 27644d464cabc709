"""Builds the source distribution, and the wheel from it, so that everyone gets the same bytes from the same commit."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from release.contents import ROOT

_BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def commit_time(root: Path = ROOT) -> str:
    """The time of the archives' files, in seconds: SOURCE_DATE_EPOCH, or the time of the last commit."""
    declared = os.environ.get("SOURCE_DATE_EPOCH")
    command = ["git", "log", "-1", "--format=%ct"]
    return declared or subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def build_archives(out: Path, root: Path = ROOT, epoch: str | None = None) -> tuple[Path, Path]:
    """Build into a folder, with the hatchling of this environment and without a network.

    Args:
        out: The folder of the archives.
        root: The folder of the project.
        epoch: The time of the archives' files, `commit_time` unless given.

    Returns:
        The source distribution and the wheel, which is built from the unpacked source distribution, as pip does.
    """
    epoch = epoch or commit_time(root)
    sdist = out / _run("build_sdist", out, root, epoch)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
        wheel = out / _run("build_wheel", out, Path(folder, sdist.name.removesuffix(".tar.gz")), epoch)
    return sdist, wheel


def _run(hook: str, out: Path, source: Path, epoch: str) -> str:
    """Call a hook of the build backend in a process of its own, because it reads the current folder."""
    command = [sys.executable, "-c", _BUILD, hook, str(out.resolve())]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    return subprocess.run(
        command, cwd=source, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def checksum(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
