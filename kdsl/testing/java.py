"""The Java that runs Kafka: the one Spark uses, too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from kdsl.testing.errors import JavaError

OLDEST_JAVA = 17  # Kafka 4 brokers and Spark 4 both ask for it

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_FIX = f"install a JDK {OLDEST_JAVA} or newer, or point JAVA_HOME at one"


def find_java() -> Path:
    """Find the ``java`` program: of ``$JAVA_HOME`` if it is set, else of ``$PATH``.

    It is run once to check its version.

    Raises:
        JavaError: There is none, it does not run, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaError(f"JAVA_HOME is {home!r}, but there is no bin/java in it; {_FIX}")
    else:
        program = shutil.which("java")
        if program is None:
            raise JavaError(f"Kafka needs Java, and no 'java' was found on the PATH; {_FIX}")
        java = Path(program)
    version = java_version(java)
    if version < OLDEST_JAVA:
        raise JavaError(f"Kafka needs Java {OLDEST_JAVA} or newer, but {java} is Java {version}; {_FIX}")
    return java


def java_version(java: Path) -> int:
    """Run a ``java`` program to read its major version, as 8, 17 or 21.

    Raises:
        JavaError: The program does not run, or does not print a version.
    """
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
