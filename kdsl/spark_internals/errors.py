"""What py4j raises when a call into the JVM fails, and the reason in the messages of Spark's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kdsl.errors import SparkJobError

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
except ModuleNotFoundError:  # without PySpark nothing calls into a JVM, and nothing raises these

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Stands for the error that no call can raise."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef,misc]
        """Stands for the error that no call can raise."""


_OWN_ERROR = re.compile(
    r"^kdsl(?:_formats)?\.[\w.]+Error: (.*?)"
    r"(?:(?:\s+SQLSTATE: \w+(?:; line \d+ pos \d+;?)?)+[ \t]*(?:\n.*)?|\n\s*at .*|\n\n.*)?\Z",
    re.MULTILINE | re.DOTALL,
)
"""An error of kdsl in the message of Spark's error, up to what Spark appends and Java's stack trace.

An SQLSTATE that is followed by something else on its line belongs to an error of Spark that kdsl's error quotes.
"""
_CHAIN = re.compile(
    r"\n\s*(?:The above exception was the direct cause of the following exception|"
    r"During handling of the above exception, another exception occurred):\n"
)
"""What Python writes between the traces of a cause and of its consequence."""
_PYTHON_ERROR = re.compile(r"^Traceback .*?\n(?=\S)(.*?)(?:\n\s*at .*|\n\n.*)?\Z", re.MULTILINE | re.DOTALL)
"""What follows the trace of Python in the message of Spark's error."""
_GROUP_MARGIN = re.compile(r"^ *\| ?", re.MULTILINE)
"""What Python writes before each line of an error that has several."""
_GROUP_PARTS = re.compile(r"^ *\+-\+-+ 1 -.*", re.MULTILINE | re.DOTALL)
"""The traces of these errors; the message of kdsl's `ResolveError` lists them already."""
_TRACE = re.compile(r"\n\s*at |\n\n|\nJVM stacktrace:|\nDriver stacktrace:|\nTraceback ")
"""What begins the trace in the message of an error."""
_STATE_SCHEMA = (
    "the state in the query's checkpoint stores other columns than the query has now, and Spark cannot change stored "
    "rows: undo the change of the tables or the query, or start with a new checkpoint where this one has stopped, as "
    "docs/upgrading.md describes for queries with state: read_stream(…, start_at=kdsl.Checkpoint(FOLDER))"
)
_EXPLAINED = {
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE": _STATE_SCHEMA,
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": _STATE_SCHEMA,
}
"""What errors of Spark mean, by the names that their messages contain."""
_RECORD_CONVERTER = "KafkaRecordToUnsafeRowConverter"
_OVERFLOW = "long overflow"
_TIMESTAMP = (
    "a record of the topic has a timestamp beyond the year 294247, such as one in microseconds or nanoseconds: Spark's "
    "Kafka connector (transport 'jvm') cannot read such a record, whatever columns the table has; read the topic with "
    "the transport 'librdkafka', or start after the record"
)
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


def full_text(error: BaseException) -> str:
    """The whole message of an error of Spark, also of one that was shortened (`kdsl.spark_internals.short_errors`)."""
    return str(error.__cause__ if isinstance(error, SparkJobError) and error.__cause__ is not None else error)


def find_own_reason(text: str) -> str | None:
    """The message of kdsl's error in the message of an error of Spark; None if there is none.

    Where one error of kdsl caused another, it is the last consequence.
    """
    text = _flatten_groups(text)
    for part in reversed(_CHAIN.split(text)):
        own = _OWN_ERROR.search(part)
        if own is not None:
            return own[1].strip() or None
    return None


def explain_error(error: BaseException) -> str | None:
    """The sentence of kdsl that explains an error of Spark: that of kdsl's error in it, or of what kdsl knows about it.

    None if there is none.
    """
    text = full_text(error)
    own = find_own_reason(text)
    if own is not None:
        return own
    if _OVERFLOW in text and _RECORD_CONVERTER in f"{text}{getattr(error, '_stackTrace', '')}":
        return _TIMESTAMP
    return next((reason for name, reason in _EXPLAINED.items() if name in text), None)


def find_reason(error: BaseException) -> str:
    """The message of an error, without a trace; of Spark's, the sentence of kdsl that explains it, if there is one."""
    text = full_text(error)
    own = explain_error(error)
    if own is None and (python := _PYTHON_ERROR.search(_flatten_groups(text))) is not None:
        own = python[1].strip()
    return own or _TRACE.split(text, maxsplit=1)[0].strip() or type(error).__name__


def _flatten_groups(text: str) -> str:
    """Remove from a string what Python adds to an error that has several, except the error itself."""
    return _GROUP_MARGIN.sub("", _GROUP_PARTS.sub("", text)) if "Exception Group Traceback" in text else text
