"""What py4j raises when a call into the JVM fails, and the reason in the messages of Spark's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
except ModuleNotFoundError:  # without PySpark nothing calls into a JVM, and nothing raises these

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Stands for the error that no call can raise."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef,misc]
        """Stands for the error that no call can raise."""


_OWN_ERROR = re.compile(r"^kdsl\.[\w.]+Error: (.*?)(?:\n\s*at .*|\n\n.*)?\Z", re.MULTILINE | re.DOTALL)
"""An error of kdsl in the message of Spark's error, up to Java's stack trace."""
_PYTHON_ERROR = re.compile(r"^Traceback .*?\n(?=\S)(.*?)(?:\n\s*at .*|\n\n.*)?\Z", re.MULTILINE | re.DOTALL)
"""What follows the trace of Python in the message of Spark's error."""
_GROUP_MARGIN = re.compile(r"^ *\| ?", re.MULTILINE)
"""What Python writes before each line of an error that has several."""
_GROUP_PARTS = re.compile(r"^ *\+-\+-+ 1 -.*", re.MULTILINE | re.DOTALL)
"""The traces of these errors; the message of kdsl's `ResolveError` lists them already."""
_TRACE = re.compile(r"\n\s*at |\n\n|\nJVM stacktrace:|\nDriver stacktrace:|\nTraceback ")
"""What begins the trace in the message of an error."""
GatewayError: type[Exception] = Py4JError
"""A call into the JVM failed: Java raised an exception, or the JVM has ended."""
JavaError: type[Exception] = Py4JJavaError
"""The subclass of `GatewayError` for an exception of Java."""


def java_exception(error: BaseException) -> Any:
    """The Java exception that caused a Python exception; None if there is none."""
    return getattr(error, "java_exception", None)


def root_cause(error: BaseException) -> Any:
    """The innermost Java exception behind a `JavaError`; other errors have none, and fail with AttributeError."""
    exception = java_exception(error)
    while exception.getCause() is not None:
        exception = exception.getCause()
    return exception


def java_causes(error: BaseException) -> Iterator[str]:
    """The classes of the Java exceptions behind a Python exception, the outermost first; none if there is none."""
    exception = java_exception(error)
    while exception is not None:
        yield str(exception.getClass().getName())
        exception = exception.getCause()


def java_message(error: BaseException) -> str:
    """The message of Java's exception, or of Python's where there is none."""
    exception = java_exception(error)
    return str(error) if exception is None else str(exception.getMessage() or exception)


def find_reason(error: BaseException) -> str:
    """The message of an error, without a trace; of Spark's, that of kdsl's error in it, if there is one."""
    text = str(error)
    if "Exception Group Traceback" in text:
        text = _GROUP_MARGIN.sub("", _GROUP_PARTS.sub("", text))
    own = _OWN_ERROR.search(text) or _PYTHON_ERROR.search(text)
    return (_TRACE.split(text, maxsplit=1)[0] if own is None else own[1]).strip() or type(error).__name__
