"""Checks of a session (a supported Spark, kdsl in its Python, TIME where a table needs it), and local sessions."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kdsl.errors import KdslError
from kdsl.java import find_java
from kdsl.loading import warn_of_job
from kdsl.spark_internals.errors import GatewayError, full_text
from kdsl.spark_internals.pipelines import in_pipeline
from kdsl.spark_internals.session import is_connect, names_of_settings
from kdsl.spark_internals.short_errors import shorten_errors
from kdsl.spark_versions import (
    CONNECT_STREAMS,
    INSTALL,
    PYTHON_SOURCES,
    REALTIME,
    TIME_TYPE,
    SparkVersionError,
    oldest_java,
    pyspark_version,
    refusal,
    require,
)
from kdsl.types import model as t
from kdsl.types.spark import TIME_TYPE_SETTING, time_type_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.plan.model import ReadPlan, WritePlan

_log = logging.getLogger(__name__)
_NAME_PATTERNS = "spark.sql.parser.quotedRegexColumnNames"
_NO_BOUND = 100_000  # Spark's "no bound" is the largest int
_LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class NotInstalledError(KdslError):
    """The Python that Spark runs lacks kdsl, or a package that kdsl needs."""


@contextmanager
def explain_missing_module() -> Iterator[None]:
    """Turn Spark's report of a missing module, raised in the body, into an error with advice; others pass unchanged."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as e:
        missing = _MISSING.search(full_text(e))
        if missing is None:
            raise
        raise NotInstalledError(
            f"the Python that Spark runs does not have the module {missing[1]!r}; install kdsl there, or set "
            f"PYSPARK_PYTHON to a Python that has it before the session starts (the driver runs {sys.executable})"
        ) from e


class SessionError(KdslError):
    """The session cannot hold the table's types, or its workers run a Python without kdsl or of another version."""


def use_this_python() -> None:
    """Set ``PYSPARK_PYTHON`` to this Python, which Spark's workers then run, unless it is set.

    It must be called before the session starts.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def check_java() -> None:
    """Check that Spark can start its JVM on this machine, so that it does not end in PySpark's traceback.

    Nothing is checked where a session is active already, or is that of a remote server.
    """
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" not in os.environ and SparkSession.getActiveSession() is None:
        find_java(f"PySpark {pyspark_version()}", oldest_java(pyspark_version()))


def start_local_session(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session, or start one on this machine that listens on loopback only.

    It sets environment variables that Spark reads: ``PYSPARK_PYTHON`` and ``SPARK_LOCAL_IP``, if they are not set. What
    the JVM prints is hidden (`hide_jvm_output`). Spark's errors are passed on, and so is that of `check_java`.

    Args:
        name: The name of the application.
        settings: Settings of Spark, in addition to those of a quiet session with two tasks at a time. In an active
            session only those are set that Spark can change while it runs.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return start_session(name, {**_LOCAL, **(settings or {})})


def start_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or start one with settings and this Python, and hide what its JVM prints.

    An active session only gets those settings that Spark can change while it runs.
    """
    from pyspark.sql import SparkSession

    check_java()
    use_this_python()
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with hide_jvm_output():
        return builder.getOrCreate()


@contextmanager
def hide_jvm_output() -> Iterator[None]:
    """Hide what this process and a JVM that it starts write to standard error in the body; show it if the body fails.

    What that JVM writes there later stays hidden, too.
    """
    screen = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            yield
        except BaseException:
            output.seek(0)
            os.write(screen, output.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)


def check_python(spark: SparkSession, table: str) -> None:
    """Check that the Python that a local session runs in its workers has kdsl.

    Spark runs ``PYSPARK_PYTHON``, or else the first ``python3`` on the path. That is another Python when a program is
    started by the path of a virtual environment that is not activated. What the executors of a cluster run cannot be
    seen from here; there, and on Spark Connect, nothing is checked, and `explain_missing_module` explains a missing
    module. Another Python than this one is run once to find out (`problem_of_python`).
    """
    if is_connect(spark):
        return
    context = spark.sparkContext
    if not re.fullmatch(r"local(\[.*\])?", context.master or ""):
        return
    program = context.pythonExec
    if problem := problem_of_python(program):
        raise SessionError(
            f"{table}: Spark runs {program!r} in its workers ({problem}), and the driver runs {sys.executable}; write "
            'os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts, or activate the virtual '
            "environment"
        )


@cache
def problem_of_python(program: str) -> str | None:
    """Run a Python of this machine to find out why it cannot run kdsl's tasks; None if it can. The result is cached.

    One in the folder of this Python is not run: it can.
    """
    path = shutil.which(program)
    if path is None:
        return "which does not exist"
    if Path(path).absolute().parent == Path(sys.executable).absolute().parent:
        return None  # python and python3 of one environment
    try:
        asked = subprocess.run([path, "-c", _QUESTION], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return "which does not start"
    version, *missing = asked.stdout.split()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != here:
        return f"Python {version}, but the driver has {here}"
    return f"which lacks {', '.join(missing)}" if missing else None


_QUESTION = """
import importlib.util, sys
needed = ("kdsl", "attrs", "confluent_kafka", "pyarrow")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
print(".".join(map(str, sys.version_info[:2])), *missing)
"""


def check_spark(spark: SparkSession) -> None:
    """Check that kdsl supports a session's Spark: PySpark's version, and that of the JVM or the server.

    From then on, PySpark raises the errors of kdsl in jobs and queries with their own message (`shorten_errors`).
    """
    if reason := refusal("PySpark is", pyspark_version()):
        raise SparkVersionError(f"{reason}; {INSTALL}")
    subject = "the Spark Connect server is" if is_connect(spark) else "the session's JVM is"
    if reason := refusal(subject, session_version(spark)):
        way = "use a server of a supported version" if is_connect(spark) else "see the variable SPARK_HOME"
        raise SparkVersionError(f"{reason}; {way}")
    shorten_errors()


def check_runtime(spark: SparkSession, table: str) -> None:
    """Check that kdsl supports the session's Spark, and that the session can run kdsl's tasks; no task is run.

    If a command is importing the program that reads or writes, a warning is logged (`kdsl.loading`).
    """
    warn_of_job(table)
    check_spark(spark)
    if get_setting(spark, _NAME_PATTERNS, "false") == "true":
        raise SessionError(
            f"{table}: with {_NAME_PATTERNS}=true, Spark takes the names of columns for regular expressions; write "
            f"spark.conf.set({_NAME_PATTERNS!r}, 'false')"
        )
    check_python(spark, table)


def check_session(spark: SparkSession, table: str, row: t.Row) -> None:
    """Check that kdsl supports the session's Spark, and that the session can run kdsl's tasks and hold a table's rows.

    No task is run, and nothing changes.
    """
    check_runtime(spark, table)
    if t.contains(row, t.Time):
        require(TIME_TYPE, session_version(spark), table)
    if problem := time_type_problem(row, get_setting(spark, TIME_TYPE_SETTING, "false")):
        raise SessionError(f"{table}: {problem}")


def check_features(spark: SparkSession, plan: ReadPlan | WritePlan, *, streaming: bool = False) -> None:
    """Check that a session's Spark has the transport and the latency of a plan, and streams; nothing changes."""
    version = session_version(spark)
    if plan.transport == "librdkafka":
        require(PYTHON_SOURCES, version, plan.table)
    if streaming and is_connect(spark):
        require(CONNECT_STREAMS, version, plan.table)
    if plan.latency == "realtime":
        require(REALTIME, version, plan.table)


def session_version(spark: SparkSession) -> str:
    """Return the version of a session's Spark; in a pipeline, which refuses the question, that of PySpark."""
    return pyspark_version() if in_pipeline() else spark.version


def get_setting(spark: SparkSession, name: str, default: str | None = None) -> str | None:
    """Return a setting of a session; the default if it is not set, or the session does not show it."""
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(name, default)
    except (PySparkException, GatewayError):
        return default


def get_zone(spark: SparkSession) -> str:
    """Return the time zone of a session."""
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def has_settings(spark: SparkSession, names: Iterable[str]) -> bool:
    """Return whether one of some settings is set in a session; False also if it does not show its settings."""
    from pyspark.errors import PySparkException

    try:
        present = names_of_settings(spark)
    except (PySparkException, GatewayError):
        return False
    return not present.isdisjoint(names)


def try_setting(spark: SparkSession, name: str, value: str | None) -> bool:
    """Change a setting of a session, or unset it (None); return False if the session does not allow that.

    Managed sessions and Connect servers may refuse to change settings.
    """
    from pyspark.errors import PySparkException

    try:
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
    except (PySparkException, GatewayError) as e:
        _log.debug("the session does not allow %s to be set: %s", name, e)
        return False
    return True


def require_setting(spark: SparkSession, name: str, value: str, purpose: str) -> None:
    """Change a setting of a session, unless it has the value.

    Args:
        spark: The session.
        name: The setting.
        value: The value that it needs.
        purpose: What needs it, as the subject of the message.
    """
    if get_setting(spark, name) != value and not try_setting(spark, name, value):
        raise SessionError(
            f"{purpose} needs the setting {name}={value}, which this session does not allow to be changed; add the "
            f"line\n    {name} {value}\nto the Spark configuration with which the session, its cluster or its Connect "
            "server is started"
        )


@contextmanager
def change_settings(
    spark: SparkSession, wanted: Mapping[str, str], required: Mapping[str, str] | None = None, *, purpose: str = ""
) -> Iterator[None]:
    """Change settings of a session during the body, and restore them.

    Args:
        spark: The session.
        wanted: Settings that only make something faster; those that the session does not allow are skipped.
        required: Settings that must have their value.
        purpose: What needs the required ones, for the message.
    """
    before: dict[str, str | None] = {}
    try:
        for name, value in wanted.items():
            old = get_setting(spark, name)
            if try_setting(spark, name, value):
                before[name] = old
        for name, value in (required or {}).items():
            old = get_setting(spark, name)
            require_setting(spark, name, value, purpose)
            before[name] = old
        yield
    finally:
        for name, old in before.items():
            try_setting(spark, name, old)


def available_cores(spark: SparkSession) -> int:
    """Return how many tasks a session runs at a time, as far as that is known (`count_cores`)."""
    present = 0 if is_connect(spark) else spark.sparkContext.defaultParallelism
    return count_cores(partial(get_setting, spark), present)


def count_cores(setting: Callable[[str], str | None], present: int = 0) -> int:
    """Compute from settings how many tasks a session will run at a time.

    Args:
        setting: Gives a setting of the session, or None.
        present: The cores that the session has now; 0 where that is not known.

    Returns:
        The largest of the configured and present numbers; without any, the cores of this machine.
    """

    def number(name: str) -> int:
        text = setting(name) or ""
        return int(text) if text.isdigit() and int(text) < _NO_BOUND else 0

    local = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", setting("spark.master") or "")
    dynamic = setting("spark.dynamicAllocation.enabled") == "true"
    executors = number("spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances")
    requested = executors * max(1, number("spark.executor.cores")) // max(1, number("spark.task.cpus"))
    configured = [number("spark.default.parallelism"), number("spark.cores.max"), int(local[1]) if local else 0]
    return max(present, requested, *configured) or os.cpu_count() or 1
