"""Raises the errors of Spark's jobs and queries with kdsl's sentence alone, and Spark's exception as their cause.

An error of kdsl in a task, in Spark's planning process or in a function of ``foreachBatch`` reaches the driver inside
Spark's exception, between the traces of two languages: thousands of characters with a sentence in the middle. PySpark
converts the exceptions of Java at one place, and those of a Connect server at another; both are wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any, NoReturn

from kdsl.errors import SparkJobError
from kdsl.spark_internals.errors import JavaError, explain_error

_MARK = "__kdsl_short_errors__"
_lock = Lock()


def shorten(error: BaseException) -> BaseException | None:
    """Return an error with kdsl's sentence alone, which is also of the class of an error of Spark; None if it has none.

    Args:
        error: The error of Spark, which is to become the cause.
    """
    if isinstance(error, SparkJobError):
        return None
    reason = explain_error(error)
    if reason is None:
        return None
    known: Any = type(error)
    kind = _short_class(known)
    short: Any = kind.__new__(kind)
    short.__dict__.update(vars(error))
    short.args = (reason,)
    return short  # type: ignore[no-any-return]


@cache
def _short_class(kind: Any) -> Any:
    """Return the subclass of `SparkJobError` and of a class of Spark's exceptions."""

    def text(self: BaseException) -> str:
        """Return the reason."""
        return str(self.args[0])

    names = {"__str__": text, "__module__": SparkJobError.__module__, "__doc__": SparkJobError.__doc__}
    return type(SparkJobError.__name__, (SparkJobError, kind), names)


def shorten_errors() -> None:
    """Let PySpark raise errors with kdsl's sentence alone where there is one, in this process from now on.

    The first call changes PySpark's function that captures the exceptions of Java, and the first one after PySpark's
    Connect client was imported changes its method for errors; later calls do nothing.
    """
    with _lock:
        from pyspark.errors import PySparkException

        captured: Any = sys.modules.get("pyspark.errors.exceptions.captured")
        if captured is not None and not hasattr(captured.capture_sql_exception, _MARK):
            capture = captured.capture_sql_exception

            def capture_shortly(function: Callable[..., Any]) -> Callable[..., Any]:
                """Wrap a function of Py4J as PySpark does, and shorten what it raises."""
                return _shorten_raised(capture(function), (PySparkException, JavaError))

            setattr(capture_shortly, _MARK, True)
            captured.capture_sql_exception = capture_shortly
            captured.install_exception_handler()
        client: Any = sys.modules.get("pyspark.sql.connect.client.core")
        if client is not None and not hasattr(client.SparkConnectClient._handle_error, _MARK):  # noqa: SLF001
            handle = _shorten_raised(client.SparkConnectClient._handle_error, (PySparkException,))  # noqa: SLF001
            setattr(handle, _MARK, True)
            client.SparkConnectClient._handle_error = handle  # noqa: SLF001


def _shorten_raised(function: Callable[..., Any], kinds: tuple[type[BaseException], ...]) -> Callable[..., Any]:
    """Wrap a function so that errors of some kinds that it raises are shortened; others pass unchanged."""

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        """Call the function."""
        try:
            return function(*args, **named)
        except kinds as e:
            _raise_short(e)

    return call


def _raise_short(error: BaseException) -> NoReturn:
    """Raise a shortened error from an error of Spark, or that error itself if it cannot be shortened."""
    try:
        short = shorten(error)
    except Exception:  # noqa: BLE001  # the session has ended, or the error has another form: it is shown as it is
        short = None
    if short is None:
        raise error
    raise short from error
