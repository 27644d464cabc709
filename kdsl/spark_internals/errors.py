"""What py4j raises when a call into the JVM fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
except ModuleNotFoundError:  # without PySpark nothing calls into a JVM, and nothing raises these

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Stands for the error that no call can raise."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef,misc]
        """Stands for the error that no call can raise."""


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
