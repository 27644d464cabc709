"""A session's JVM, and what only the JVM knows about the session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from kdsl.spark_versions import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType


def is_spark_3() -> bool:
    """Whether the installed PySpark is one of Spark 3, where some internal parts are elsewhere."""
    return pyspark_version().startswith("3.")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has neither a Spark context nor a JVM in this process."""
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def jvm_of(spark: SparkSession) -> Any:
    """The JVM of a classic session; one of Spark Connect has none, and raises an AttributeError."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    return jvm


def gateway_of(spark: SparkSession) -> Any:
    """The py4j gateway of a classic session."""
    return spark.sparkContext._gateway  # noqa: SLF001


def has_pinned_threads(spark: SparkSession) -> bool:
    """Whether each Python thread of a classic session has a JVM thread of its own (``PYSPARK_PIN_THREAD``)."""
    from py4j.clientserver import ClientServer  # type: ignore[import-untyped]

    return isinstance(gateway_of(spark), ClientServer)


def java_session(spark: SparkSession) -> Any:
    """Java's object of a classic session; None for Spark Connect."""
    return getattr(spark, "_jsparkSession", None)


def wrap_session(spark: SparkSession, session: Any) -> SparkSession:
    """The Python object of a Java session in the same application as a classic session."""
    return type(spark)(spark.sparkContext, session)


def clone_session(spark: SparkSession) -> SparkSession:
    """A session with the settings and the temporary views of a classic session, whose own settings stay its own."""
    return wrap_session(spark, java_session(spark).cloneSession())


def copy_settings(source: SparkSession, target: SparkSession, more: Mapping[str, str]) -> None:
    """Give a classic session the settings of another one of the same application, and more; others are unset.

    Args:
        source: The session with the settings.
        target: The session that gets them.
        more: The settings that it gets besides, or instead.
    """
    wanted, known = {**source.conf.getAll, **more}, target.conf.getAll
    # `SparkSession.builder` gives a session any setting, also those of the application, which `conf` refuses.
    settings = java_session(target).sessionState().conf()
    for name in known.keys() - wanted.keys():
        settings.unsetConf(name)
    for name, value in wanted.items():
        if known.get(name) != value:
            settings.setConfString(name, value)


def java_dataframe(df: DataFrame) -> Any:
    """Java's object of a DataFrame; None for Spark Connect."""
    return getattr(df, "_jdf", None)


def java_column(column: Column) -> Any:
    """Java's object of a column, in a classic session."""
    return getattr(column, "_jc")  # noqa: B009


def copy_to_session(df: DataFrame, spark: SparkSession) -> DataFrame:
    """The rows of a DataFrame in another classic session, without the plan that computes them.

    Args:
        df: The DataFrame. Each action on the result computes it again, unless it is persisted.
        spark: The session of the result, in the same application.
    """
    from pyspark.sql import DataFrame

    frame = java_dataframe(df)
    rows = frame.queryExecution().toRdd()
    return DataFrame(java_session(spark).internalCreateDataFrame(rows, frame.schema(), False), spark)


def java_schema(spark: SparkSession, schema: StructType) -> Any:
    """Java's object of a schema, for a classic session."""
    return jvm_of(spark).org.apache.spark.sql.types.DataType.fromJson(schema.json())


def java_strings(spark: SparkSession, strings: Sequence[str]) -> Any:
    """Strings as an array of Java, for a classic session."""
    array = gateway_of(spark).new_array(jvm_of(spark).String, len(strings))
    for i, string in enumerate(strings):
        array[i] = string
    return array


def session_id(spark: SparkSession) -> str:
    """The id of a session."""
    session: Any = spark
    return str(session.session_id if is_connect(spark) else java_session(spark).sessionUUID())


def names_of_settings(spark: SparkSession) -> set[str]:
    """The names of all settings that are set in a session; Spark's errors are passed on."""
    conf: Any = spark.conf
    return {row["key"] for row in spark.sql("SET").collect()} if is_spark_3() else set(conf.getAll)


def know_schema(df: DataFrame, schema: StructType) -> DataFrame:
    """Tell a DataFrame of Spark Connect its schema, so that it does not ask the server for it; return the DataFrame.

    The server refuses such a question in a pipeline. A classic DataFrame knows its schema.

    Args:
        df: The DataFrame.
        schema: Exactly its schema.
    """
    if is_connect(df.sparkSession):
        setattr(df, "_cached_schema", schema)  # noqa: B010
    return df


def register_data_source(spark: SparkSession, name: str, source: type[DataSource]) -> None:
    """Register a Python data source, unless a classic session has it: Spark warns about a second registration.

    On Spark Connect it is registered each time.

    Args:
        spark: The session, classic or Connect.
        name: The name of the source.
        source: The source.
    """
    session = java_session(spark)
    if session is None or not session.sessionState().dataSourceManager().dataSourceExists(name):
        spark.dataSource.register(source)


def set_active_session(spark: SparkSession) -> None:
    """Make a session the active one of the JVM's current thread, where Spark looks for data sources.

    A session of Spark Connect has no JVM: nothing happens.
    """
    session = java_session(spark)
    if session is not None:
        _sessions(jvm_of(spark)).setActiveSession(session)


@contextmanager
def active_session(jvm: Any, session: Any) -> Iterator[None]:
    """Make a Java session the active one of the JVM's current thread, and restore the previous one at the end.

    Args:
        jvm: The JVM.
        session: Java's object of the session.
    """
    sessions = _sessions(jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


_active_lock = Lock()
"""Held while a session is the active one of all threads, so that another thread does not take it for the former one."""


@contextmanager
def keep_active_session(spark: SparkSession) -> Iterator[None]:
    """Restore the active session at the end, which ``createDataFrame`` of a classic session replaces by its own.

    PySpark has one active session for all threads, so a batch of a stream, which has a session of its own, would
    change the one that the program gets from ``SparkSession.getActiveSession()``.

    Args:
        spark: The session whose ``createDataFrame`` is called.
    """
    if is_connect(spark):
        yield
        return
    sessions: Any = type(spark)
    with _active_lock, active_session(jvm_of(spark), java_session(spark)):
        before = sessions._activeSession  # noqa: SLF001
        try:
            yield
        finally:
            sessions._activeSession = before  # noqa: SLF001


def _sessions(jvm: Any) -> Any:
    """The JVM's class of classic sessions, which knows the active one of each thread."""
    package = jvm.org.apache.spark.sql
    return package.SparkSession if is_spark_3() else package.classic.SparkSession


def wait_for_listeners(spark: SparkSession, milliseconds: int) -> None:
    """Wait until the listeners of a classic session have received all events so far.

    Returns at once if the session has been stopped.

    Args:
        spark: The session.
        milliseconds: How long to wait at most.
    """
    context: Any = spark.sparkContext
    if context._jsc is not None:  # noqa: SLF001
        context._jsc.sc().listenerBus().waitUntilEmpty(milliseconds)  # noqa: SLF001


def scala_none(jvm: Any) -> Any:
    """Scala's ``None``."""
    return getattr(getattr(jvm.scala, "None$"), "MODULE$")


def explain_text(df: DataFrame) -> str:
    """The text of ``explain("extended")``, which Spark Connect has in place of a plan; Spark's errors are passed on."""
    explain: Any = getattr(df, "_explain_string")  # noqa: B009
    return str(explain(extended=True))


def open_jdbc_connection(spark: SparkSession, url: str, table: str, options: Mapping[str, str]) -> Any:
    """Open a connection to a database in the driver, as Spark's JDBC source does, and return the Java ``Connection``.

    Args:
        spark: A classic session.
        url: The JDBC address.
        table: The table.
        options: The options of Spark's JDBC source: ``driver``, ``user`` and so on.
    """
    jvm = jvm_of(spark)
    scala_options = jvm.PythonUtils.toScalaMap(dict(options))
    jdbc_options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(url, table, scala_options)
    return jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url).createConnectionFactory(jdbc_options).apply(-1)
