"""Functions that the driver sends to tasks as strings: in options of a source or sink, or in settings of a session."""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any


def write_function(function: Callable[..., Any]) -> str:
    """Pickle a function that tasks call, and return it as a string; it must not contain secrets.

    Pickle's errors are passed on.
    """
    return base64.b64encode(zlib.compress(pickle.dumps(function))).decode()


@lru_cache(maxsize=8)
def read_function(text: str) -> Any:
    """Read what `write_function` has written; the last 8 are cached, and returned as the same objects.

    Errors are those of ``pickle``, as where the function's module cannot be imported.
    """
    return pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301  # of our own driver
