"""The packages that kdsl needs only for some purposes: the extra that installs each, and the error for a missing one.

What every task imports is installed with kdsl itself; ``pip install 'kdsl-kafka[cli,registry]'`` adds extras.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from kdsl.errors import KdslError

EXTRAS: Mapping[str, str] = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "typer": "cli",
    "rich": "cli",
    "httpx": "registry",
    "prometheus_client": "metrics",
    "cryptography": "tls",
    "polars": "verify",
    "psutil": "test",
    "pytest": "test",
}
"""The extra of kdsl that installs a package, by the name under which the package is imported."""
_PYSPARK_NEEDS = re.compile(r"\[PACKAGE_NOT_INSTALLED\] (\w+) ")


class MissingPackageError(KdslError):
    """A package that kdsl needs for this purpose is not installed; the message names the extra that installs it."""


def missing_package(purpose: str, error: ImportError) -> MissingPackageError | None:
    """The error for a failed import; None if the module belongs to none of the extras, or its package is installed.

    Args:
        purpose: What needs the package, such as ``the command line``.
        error: The failed import.
    """
    needed = _PYSPARK_NEEDS.match(str(error))  # an error of PySpark's own
    name = error.name if isinstance(error, ModuleNotFoundError) else needed[1].lower() if needed else None
    package, _, inner = (name or "").partition(".")
    if package not in EXTRAS or (inner and find_spec(package) is not None):  # another version may have that module
        return None
    where = ", or the package alone where a platform brings PySpark" if package == "pandas" else ""
    return MissingPackageError(f"{purpose} needs the package {package}; install 'kdsl-kafka[{EXTRAS[package]}]'{where}")


@contextmanager
def explain_missing_package(purpose: str) -> Iterator[None]:
    """Explain an import that fails in the body, if one of kdsl's extras installs the package; other errors pass.

    Args:
        purpose: What needs the package, such as ``the command line``.

    Raises:
        MissingPackageError: The package is not installed.
    """
    try:
        yield
    except ImportError as e:
        missing = missing_package(purpose, e)
        if missing is None:
            raise
        raise missing from e
