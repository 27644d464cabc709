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
_INTERRUPTIONS = (
    "java.io.InterruptedIOException",
    "java.lang.InterruptedException",
    "java.nio.channels.ClosedByInterruptException",
)
_CAUSES = 10
"""How many causes of an error are looked at."""
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
        return str(self.args[0])

    names = {"__str__": text, "__module__": SparkJobError.__module__, "__doc__": SparkJobError.__doc__}
    return type(SparkJobError.__name__, (SparkJobError, kind), names)


def _write_interruption(self: Any) -> str:
    """Py4J's first line, and the name of Java's class."""
    return f"{str(self.errmsg).strip()}\n: {self.interruption}"


_Interruption: Any = type(
    JavaError.__name__, (JavaError,), {"__module__": JavaError.__module__, "__str__": _write_interruption}
)
"""The error of a call into a JVM whose thread was interrupted, without Java's trace.

A query that is stopped interrupts a function of ``foreachBatch`` in this way. Spark recognizes that by a regular
expression on Python's trace, which begins at the name of this class and recurses for each character up to the name of
Java's: with the traces of both languages it overflows the stack of the query's thread.
"""


def shorten_interruption(error: Any) -> BaseException | None:
    """Return an error of Java without its trace if an interruption of its thread is the reason; otherwise None.

    Args:
        error: Py4J's error. Errors of further calls of Java are passed on.
    """
    java = error.java_exception
    for _ in range(_CAUSES):
        if java is None:
            return None
        name = str(java.getClass().getName())
        if name in _INTERRUPTIONS:
            short: Any = _Interruption.__new__(_Interruption)
            short.__dict__.update(vars(error), interruption=name)
            short.args = error.args
            return short  # type: ignore[no-any-return]
        java = java.getCause()
    return None


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
        try:
            return function(*args, **named)
        except kinds as e:
            _raise_short(e)

    return call


def _raise_short(error: BaseException) -> NoReturn:
    """Raise a shortened error from an error of Spark, or that error itself if it cannot be shortened.

    An interruption is raised alone, because the trace of its cause would make it as long as it was.
    """
    short = _try(shorten, error)
    if short is not None:
        raise short from error
    interruption = _try(shorten_interruption, error) if isinstance(error, JavaError) else None
    if interruption is not None:
        raise interruption from None
    raise error


def _try(function: Callable[[BaseException], BaseException | None], error: BaseException) -> BaseException | None:
    """Return what a function makes of an error; None if it fails.

    Then the session has ended, or the error has another form: it is shown as it is.
    """
    try:
        return function(error)
    except Exception:  # noqa: BLE001
        return None
