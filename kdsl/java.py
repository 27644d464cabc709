"""The Java of this machine, which runs Spark and, in tests, Kafka."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from kdsl.errors import KdslError

OLDEST_JAVA = 17
"""The oldest Java for brokers of Kafka 4, and for Spark 4."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_FIX = "install a newer JDK, or point JAVA_HOME at one"


class JavaError(KdslError):
    """There is no Java that a program can run on."""


def find_java(program: str = "Kafka", oldest: int = OLDEST_JAVA) -> Path:
    """Find the ``java`` program: of ``$JAVA_HOME`` if it is set, else of ``$PATH``.

    It is run once to check its version.

    Args:
        program: What needs it, for messages.
        oldest: The oldest version that this can use.
    """
    fix = f"install a JDK {oldest} or newer, or point JAVA_HOME at one"
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaError(f"JAVA_HOME is {home!r}, but there is no bin/java in it; {fix}")
    else:
        path = shutil.which("java")
        if path is None:
            raise JavaError(f"{program} needs Java, and no 'java' was found on the PATH; {fix}")
        java = Path(path)
    version = java_version(java)
    if version < oldest:
        raise JavaError(f"{program} needs Java {oldest} or newer, but {java} is Java {version}; {fix}")
    return java


def java_version(java: Path) -> int:
    """Run a ``java`` program to read its major version, as 8, 17 or 21."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{java} does not run ({error}); {_FIX}") from error
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:  # macOS has a /usr/bin/java that only prints that there is no Java
        output = (done.stderr or done.stdout).strip().splitlines()
        raise JavaError(f"{java} does not run ({output[0] if output else 'without output'}); {_FIX}")
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major
