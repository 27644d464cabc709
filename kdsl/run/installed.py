"""kdsl must be installed where Spark runs Python; where it is not, say so instead of showing a stranger's traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from kdsl.errors import KdslError

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class NotInstalledError(KdslError):
    """The Python that Spark runs lacks kdsl, or a package that kdsl needs."""


@contextmanager
def told_if_missing() -> Iterator[None]:
    """Turn Spark's report of a module that its Python lacks into advice.

    Raises:
        NotInstalledError: The Python that Spark runs lacks a module.
    """
    try:
        yield
    except PySparkException as e:
        missing = _MISSING.search(str(e))
        if missing is None:
            raise
        raise NotInstalledError(
            f"the Python that Spark runs has no module {missing[1]!r}; install kdsl there, as it is on the driver, "
            f"or set PYSPARK_PYTHON to a Python that has it before the session starts (this one is {sys.executable})"
        ) from e
