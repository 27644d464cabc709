"""Jars in a classic session that runs: class loading in the driver, and Spark's own resolver of Maven packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdsl.spark_internals.errors import JavaError, java_message
from kdsl.spark_internals.session import is_spark_3, java_session, jvm_of, scala_none

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.spark_versions import Package


class ResolveJarsError(Exception):
    """Ivy could not fetch a package.

    Attributes:
        output: What Ivy has printed.
    """

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def scala_version(spark: SparkSession) -> str:
    """The version of Scala that a session runs on, such as ``2.13``."""
    return ".".join(jvm_of(spark).scala.util.Properties.versionNumberString().split(".")[:2])


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver's threads can load a class; True where their class loader is not Spark's."""
    loader = _driver_loader(spark)
    if loader is None:
        return True  # kdsl cannot change it; Java reports a missing class
    try:
        loader.loadClass(name)
    except JavaError:
        return False
    return True


def add_to_session(spark: SparkSession, path: str) -> None:
    """Add a jar to a classic session and its executors, as ``ADD JAR`` does, whatever characters its path has."""
    java_session(spark).sessionState().resourceLoader().addJar(path)


def session_has_class(spark: SparkSession, name: str) -> bool:
    """Whether a classic session can load a class, from its own jars (``ADD JAR``) or those of the application."""
    if has_class(spark, name):
        return True
    session = java_session(spark)
    try:
        # In Spark 3, all sessions of an application share the jars that they add.
        loader = session.sharedState().jarClassLoader() if is_spark_3() else session.artifactManager().classloader()
        loader.loadClass(name)
    except JavaError:
        return False
    return True


def add_to_driver(spark: SparkSession, paths: Iterable[str]) -> None:
    """Let the driver's threads load classes from jars; nothing happens where their class loader is not Spark's."""
    loader = _driver_loader(spark)
    if loader is not None:
        for path in paths:
            loader.addURL(jvm_of(spark).java.io.File(path).toURI().toURL())


def _driver_loader(spark: SparkSession) -> Any:
    """The application's class loader, parent of those of sessions; None if the JVM's current thread has another."""
    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    driver_loader = None
    while loader is not None:
        if loader.getClass().getName() == "org.apache.spark.util.MutableURLClassLoader":
            driver_loader = loader
        loader = loader.getParent()
    return driver_loader


def resolve_package(spark: SparkSession, package: Package, folder: Path, repositories: str | None) -> list[str]:
    """Fetch a package with the Ivy inside Spark, which does not look into ``~/.m2``.

    Its dependencies are fetched, too, except those that `Package` leaves out.

    Args:
        spark: The session.
        package: The package.
        folder: Ivy's folder.
        repositories: Further repositories, separated by commas.

    Returns:
        The paths of the jars.
    """
    jvm = jvm_of(spark)
    nothing = scala_none(jvm)
    output = jvm.java.io.ByteArrayOutputStream()
    try:
        with _resolver(jvm, jvm.java.io.PrintStream(output)) as (maven, printer):
            settings = maven.buildIvySettings(
                jvm.scala.Some(repositories) if repositories else nothing, jvm.scala.Some(str(folder)), False, *printer
            )
            excluded = jvm.PythonUtils.toSeq(list(package.without))
            jars = maven.resolveMavenCoordinates(
                package.coordinate, settings, nothing, not package.alone, excluded, False, *printer
            )
    except JavaError as e:
        raise ResolveJarsError(java_message(e), output.toString()) from None
    return [jars.apply(i) for i in range(jars.size())]


@contextmanager
def _resolver(jvm: Any, printer: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The object that resolves packages and prints to a stream, and the further arguments of its methods.

    In Spark 3, the stream also gets what other threads of the JVM print to standard output while a package is resolved.
    """
    if not is_spark_3():
        yield jvm.org.apache.spark.util.MavenUtils, (printer,)
        return
    # The methods belong to an object of spark-submit, which prints to one stream for all. Spark itself sends standard
    # output there, too, while it resolves, and so what Ivy prints; before that, Ivy would tell which settings it loads.
    maven: Any = getattr(getattr(jvm.org.apache.spark.deploy, "SparkSubmitUtils$"), "MODULE$")
    ivy = jvm.org.apache.ivy.util
    stream, logger = maven.printStream(), ivy.Message.getDefaultLogger()
    print_to = getattr(maven, "printStream_$eq")
    print_to(printer)
    ivy.Message.setDefaultLogger(ivy.DefaultMessageLogger(ivy.Message.MSG_WARN))
    try:
        yield maven, ()
    finally:
        ivy.Message.setDefaultLogger(logger)
        print_to(stream)
