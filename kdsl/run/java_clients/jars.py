"""The jars of Spark's Kafka connector: which version goes with which Spark, and how a running session gets them.

The connector is attached once to a session, and only where it is not there already. A classic session resolves the jars
itself, with the Ivy inside Spark but in its own folder; a Connect server resolves them for ``ADD JAR 'ivy://…'``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kdsl.client_settings.cloud_logins import CLIENT_HANDLER, CLOUDS, LOGIN_HANDLER, is_handler
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.folders import cache_dir, exclusive_lock
from kdsl.ivy import explain_failure
from kdsl.spark_internals.errors import GatewayError
from kdsl.spark_internals.jars import (
    ResolveJarsError,
    add_to_driver,
    add_to_session,
    has_class,
    resolve_package,
    scala_version,
    session_has_class,
)
from kdsl.spark_internals.session import is_connect, session_id
from kdsl.spark_versions import Package, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = "kdsl.jvm.jars"
VARIABLE = "KDSL_JVM_JARS"
PROVIDED = "provided"
CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_ARTIFACT = "spark-sql-kafka-0-10"
_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_SCALA = re.compile(r"_(2\.\d+|3)(?=[:-]|$)")
_CONNECTOR = "Spark's Kafka connector"
_OFFLINE = f"without a network, name jars or folders of jars in the setting {JARS} or in {VARIABLE}"
_NEEDED = "{setting} must name {artifact}, kafka-clients, commons-pool2 and spark-token-provider-kafka-0-10"
_NO_CLASS = re.compile(r"NoClassDefFoundError: (?:Could not initialize class )?([\w/.$]+)")


class ConnectorMissingError(KdslError):
    """Spark's Kafka connector is not in the session, and could not be brought there."""


def connector_packages(spark: SparkSession) -> tuple[Package, ...]:
    """The packages of the connector for a session's version of Spark, which `check_spark` has accepted."""
    tested = spark_version(spark.version)
    assert tested is not None  # check_spark refuses other versions
    return tested.connector


_attached_sessions: set[str] = set()  # Connect sessions with the connector, whose server does not have it


def attach_connector(spark: SparkSession, *, everywhere: bool = False, streams: bool = False) -> None:
    """Attach Spark's Kafka connector to a session, unless Spark finds it there.

    The session's setting ``kdsl.jvm.jars``, or else the environment variable ``KDSL_JVM_JARS``, names what is attached:
    paths of jars, folders of jars and Maven coordinates, separated by commas; with ``provided``, nothing is attached
    and a session without the connector is an error. Without either, it is the connector of the session's version of
    Spark (`connector_packages`), which is downloaded if necessary.

    Args:
        spark: The session, classic or Connect.
        everywhere: Whether the driver's own threads must be able to load the connector's classes: Java's clients in the
            driver and real-time mode need that. Ignored on Spark Connect.
        streams: Whether a stream is to run. On Spark Connect, its tasks do not see jars that a session has attached, so
            the server itself must have the connector.
    """
    if is_connect(spark):
        id_ = session_id(spark)
        has_connector = _has_connector(spark)
        if streams and (id_ in _attached_sessions or not has_connector):
            raise ConnectorMissingError(
                "the Spark Connect server was started without Spark's Kafka connector; a session can attach it for "
                "batches, but not for streams, whose tasks do not see the session's jars; start the server with "
                f"{connector_packages(spark)[0].coordinate} in spark.jars.packages, or use a classic session"
            )
        if not has_connector:
            _attach_to_server(spark)
            _attached_sessions.add(id_)
    elif everywhere and not has_class(spark, CLASS):
        _attach_to_classic(spark, to_session=not _has_connector(spark))
    elif not everywhere and not _has_connector(spark):
        _attach_to_classic(spark, to_session=True)


def check_login_classes(spark: SparkSession, cluster: Cluster, table: str) -> None:
    """Check that a classic session has the classes of a cloud's Java library that a login names.

    Args:
        spark: The session; one of Spark Connect is not checked.
        cluster: The cluster with the login.
        table: The name of the table, for the message.
    """
    if is_connect(spark):
        return
    settings = cluster.java("consumer").settings
    for setting in (LOGIN_HANDLER, CLIENT_HANDLER):
        name = settings.get(setting, "")
        for login in CLOUDS.values():
            if is_handler(login, name) and not session_has_class(spark, name):
                raise ConnectorMissingError(
                    f"{table}: the session does not have the class {name}, which {setting!r} names; start the session "
                    f"with {login.jar} in spark.jars.packages, or use transport='librdkafka'"
                )


def attach_library(spark: SparkSession, package: Package, class_name: str, description: str) -> None:
    """Attach another library to a classic session, its executors and the driver's threads, unless its class is there.

    Nothing is attached either where the class loader of the driver's threads is not Spark's. Its jars are downloaded
    into `ivy_folder` if necessary.
    """
    if has_class(spark, class_name):
        return
    offline = "without a network, name its jars in spark.jars when the session starts"
    _add_jars(spark, _resolve(spark, [package], description, offline), to_session=True)


def _has_connector(spark: SparkSession) -> bool:
    """Return whether Spark finds its Kafka connector; no broker is asked."""
    from pyspark.errors import AnalysisException, PySparkException

    probe = spark.read.format("kafka").option("kafka.bootstrap.servers", "localhost:1").option("subscribe", "none")
    try:
        # The schema is fixed; no broker is asked.
        _ = probe.load().schema
    except AnalysisException:
        return False
    except PySparkException as e:
        if _ARTIFACT in str(e) or "DATA_SOURCE_NOT_FOUND" in str(e) or "ClassNotFound" in str(e):
            return False
        raise
    except GatewayError as e:
        reason = explain_load_failure(str(e))
        if reason is None:
            raise
        raise ConnectorMissingError(reason) from None
    return True


def explain_load_failure(error: str) -> str | None:
    """Explain why Java cannot load a connector that the session has, and what to do.

    None unless the error is Java's ``NoClassDefFoundError``.
    """
    missing = _NO_CLASS.search(error)
    if missing is None:
        return None
    needed = _NEEDED.format(setting=JARS, artifact=_ARTIFACT)
    return (
        "the session has Spark's Kafka connector, but Java cannot load it because the class "
        f"{missing[1].replace('/', '.')} is missing: a jar is missing or of another version; {needed}; then restart "
        "the program, because Java tries only once"
    )


def jars_in_settings(spark: SparkSession) -> list[str] | None:
    """Read the entries of the list of jars from the setting, or else the environment variable, without a check.

    They are paths, coordinates, or the word ``provided``; None if neither names any.
    """
    text = spark.conf.get(JARS, None) or os.environ.get(VARIABLE) or ""
    return [entry.strip() for entry in text.split(",") if entry.strip()] or None


def _attach_to_classic(spark: SparkSession, *, to_session: bool) -> None:
    """Attach the connector's jars, declared or fetched, to the driver, and to a classic session if ``to_session``."""
    scala = scala_version(spark)
    wanted = jars_in_settings(spark)
    if wanted == [PROVIDED]:
        raise ConnectorMissingError(
            f"Spark's Kafka connector is not in the session, and {JARS} says that it is provided; start the session "
            f"with {connector_packages(spark)[0].coordinate} in spark.jars.packages, or remove the setting"
        )
    paths = _resolve(spark, connector_packages(spark)) if wanted is None else []
    for entry in wanted or ():
        check_scala_version(entry, scala)
        if _COORDINATE.fullmatch(entry):
            paths += _resolve(spark, [Package(entry)])
        else:
            paths += local_jars(entry)
    for path in paths:
        check_scala_version(Path(path).name, scala)
    _add_jars(spark, paths, to_session=to_session)
    if not _has_connector(spark):
        raise ConnectorMissingError(
            f"the jars {', '.join(Path(path).name for path in paths)} were attached, but Spark still finds no Kafka "
            f"connector; {_NEEDED.format(setting=JARS, artifact=f'{_ARTIFACT}_{scala}')}"
        )


def _add_jars(spark: SparkSession, paths: Sequence[str], *, to_session: bool) -> None:
    """Add jars to the driver's threads and, if ``to_session``, to the session with its executors."""
    add_to_driver(spark, paths)
    if to_session:
        for path in paths:
            add_to_session(spark, path)


def _attach_to_server(spark: SparkSession) -> None:
    """Attach the connector to a session of Spark Connect: the jars in its settings, or those for its version of Spark.

    Jars of this machine are uploaded; the server fetches Maven coordinates. Whether it has them is not checked before.
    """
    from pyspark.errors import PySparkException

    wanted = jars_in_settings(spark)
    if wanted == [PROVIDED]:
        raise ConnectorMissingError(
            f"Spark's Kafka connector is not on the Connect server, and {JARS} says that it is provided; start the "
            f"server with {connector_packages(spark)[0].coordinate} in spark.jars.packages, or remove the setting"
        )
    urls = [package.url for package in connector_packages(spark)]
    try:
        for entry in urls if wanted is None else wanted:
            if entry.startswith("ivy:"):
                spark.sql(f"ADD JAR '{entry}'")
            elif _COORDINATE.fullmatch(entry):
                spark.sql(f"ADD JAR '{Package(entry).url}'")
            else:
                spark.addArtifacts(*local_jars(entry))
    except PySparkException as e:
        raise ConnectorMissingError(_reason(str(e), str(e), ", ".join(wanted or urls), "the server's ~/.ivy2")) from e
    if not _has_connector(spark):
        raise ConnectorMissingError(
            "the Connect server accepted the jars of Spark's Kafka connector, but does not find it; start the server "
            f"with {connector_packages(spark)[0].coordinate} in spark.jars.packages"
        )


def check_scala_version(name: str, scala: str) -> None:
    """Check that a jar or coordinate whose name has the suffix of a Scala version is built for this one."""
    suffix = _SCALA.search(name)
    if suffix is not None and suffix[1] != scala:
        raise ConnectorMissingError(
            f"{name} is built for Scala {suffix[1]}, and this Spark runs on Scala {scala}; name the one that ends in "
            f"_{scala}"
        )


def local_jars(entry: str) -> list[str]:
    """List the jars of an entry that names a jar or a folder of jars; those in folders inside it are left out.

    Args:
        entry: A path, which may be relative or begin with ``~``, or a ``file:`` address.
    """
    if entry.startswith("file:"):
        entry = unquote(re.sub("^//(localhost)?(?=/)", "", entry.removeprefix("file:")))
    path = Path(entry).expanduser().absolute()
    if path.is_dir():
        jars = sorted(str(jar) for jar in path.glob("*.jar"))
        if not jars:
            raise ConnectorMissingError(f"the folder {path}, named in {JARS} or {VARIABLE}, contains no jar")
        return jars
    if not path.is_file():
        raise ConnectorMissingError(
            f"{path}, named in {JARS} or {VARIABLE}, is not a file; write paths of jars, folders of jars, or Maven "
            "coordinates as group:artifact:version, separated by commas"
        )
    return [str(path)]


def ivy_folder(spark: SparkSession) -> Path:
    """The folder for jars that kdsl fetches: ``spark.jars.ivy`` where it is set, else a folder in kdsl's cache.

    It need not exist. Errors are those of `cache_dir`.
    """
    folder = spark.conf.get("spark.jars.ivy", None)
    return Path(folder) if folder else cache_dir() / "spark-ivy"


def _resolve(
    spark: SparkSession, packages: Sequence[Package], description: str = _CONNECTOR, offline: str = _OFFLINE
) -> list[str]:
    """Return the paths of the jars of some packages, fetched into `ivy_folder` where they are not there yet.

    Args:
        spark: The session.
        packages: The packages.
        description: What they are, for messages.
        offline: What to do without a network, for messages.
    """
    folder = ivy_folder(spark)
    repositories = spark.conf.get("spark.jars.repositories", None)
    jars: dict[str, None] = {}
    for package in packages:
        try:
            with exclusive_lock(folder / "kdsl.lock"):  # Ivy's folder is not safe for several processes
                jars |= dict.fromkeys(resolve_package(spark, package, folder, repositories))
        except ResolveJarsError as e:
            reason = _reason(str(e), e.output, package.coordinate, str(folder), description, offline)
            raise ConnectorMissingError(reason) from None
    return list(jars)


def _reason(
    error: str, output: str, coordinate: str, folder: str, description: str = _CONNECTOR, offline: str = _OFFLINE
) -> str:
    """Explain why Ivy could not fetch jars, and what to do, from its error and from what it printed.

    The other arguments are parts of the message: the package, Ivy's folder, what the jars are, advice if offline.
    """
    return explain_failure(
        output,
        error,
        subject=f"the jars of {description} ({coordinate}) cannot be fetched",
        folder=folder,
        mirror="spark.jars.repositories or DEFAULT_ARTIFACT_REPOSITORY",
        alternative=offline,
    )
