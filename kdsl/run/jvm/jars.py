"""The jars of Spark's Kafka connector: which ones go with which Spark, and how a running session gets them.

The connector is attached once to a session, and only where it is not there already. A classic session resolves the jars
itself, with the Ivy inside Spark but in a folder of its own; a Connect server is told to (``ADD JAR 'ivy://…'``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from kdsl.errors import KdslError
from kdsl.folders import cache_dir, one_at_a_time
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = "kdsl.jvm.jars"
VARIABLE = "KDSL_JVM_JARS"
PROVIDED = "provided"
CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_ARTIFACT = "spark-sql-kafka-0-10"
_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_SCALA = re.compile(r"_(2\.\d+|3)(?=[:-]|$)")
_UNREACHABLE = re.compile(
    r"Host (?P<host>\S+) not found|Server access error at url (?P<url>\S+)(?: \((?P<why>[^)]*)\))?"
)
_SPARK_PACKAGES = "repos.spark-packages.org"
_FAILED = re.compile(r"download failed: ([^\s,\]]+)")
_CONNECTOR = "Spark's Kafka connector"
_OFFLINE = f"name jars or folders of jars in the setting {JARS} or in {VARIABLE}"
_NEEDED = "{named} must bring {artifact}, kafka-clients, commons-pool2 and spark-token-provider-kafka-0-10"
_NO_CLASS = re.compile(r"NoClassDefFoundError: (?:Could not initialize class )?([\w/.$]+)")
_UNRESOLVED = re.compile(r"unresolved dependency: ([^:\s]+): ([^\],]+)")


class ConnectorMissingError(KdslError):
    """Spark's Kafka connector is not in the session, and could not be brought there."""


@attrs.frozen
class Package:
    """An artifact of a Maven repository with what it depends on.

    Attributes:
        coordinate: ``group:artifact:version``.
        without: What it does not bring along, as ``group:artifact``.
        alone: Whether it comes without what it depends on.
    """

    coordinate: str
    without: tuple[str, ...] = ()
    alone: bool = False

    @property
    def url(self) -> str:
        """The artifact as Spark's ``ADD JAR`` takes it."""
        left_out = f"exclude={','.join(self.without)}&" if self.without else ""
        return f"ivy://{self.coordinate}?{left_out}transitive={'false' if self.alone else 'true'}"


_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
TESTED: Mapping[str, tuple[Package, ...]] = {
    "4.2.0": (
        Package(f"org.apache.spark:{_ARTIFACT}_2.13:4.2.0", without=(_TOKENS,)),
        # Not every repository has 4.2.0 of the token provider. It serves delegation tokens only, and this one fits.
        Package(f"{_TOKENS}:4.0.0", alone=True),
    ),
}
"""The packages that were tested, by the version of Spark; other versions get the connector of their own version."""


def packages(version: str, scala: str = "2.13") -> tuple[Package, ...]:
    """The packages of the connector for a version of Spark.

    Args:
        version: Spark's version, as ``4.2.0``.
        scala: The version of Scala that it is built with, as ``2.13``.
    """
    if version in TESTED and scala == "2.13":
        return TESTED[version]
    return (Package(f"org.apache.spark:{_ARTIFACT}_{scala}:{version}"),)


_lent: set[str] = set()  # the Connect sessions that were given the connector, whose server does not have it


def attach(spark: SparkSession, *, everywhere: bool = False, streams: bool = False) -> None:
    """Bring Spark's Kafka connector into a session that does not have it.

    What is attached is named by the session's setting ``kdsl.jvm.jars``, else by the environment variable
    ``KDSL_JVM_JARS``: paths of jars, folders of jars, Maven coordinates, separated by commas; ``provided`` attaches
    nothing. Else it is what goes with the session's Spark (`packages`).

    Args:
        spark: The session, classic or Connect.
        everywhere: Whether the driver itself must be able to load the connector's classes, beside the session: Java's
            clients on the driver and real-time mode need that.
        streams: Whether a stream is to run. On Spark Connect, its tasks do not see jars that a session brought.

    Raises:
        ConnectorMissingError: The connector cannot be had; says why, and what to do instead.
    """
    classic = _jvm(spark)
    if classic is None:
        session: Any = spark
        id_ = str(session.session_id)
        known = _knows_kafka(spark)
        if streams and (id_ in _lent or not known):
            raise ConnectorMissingError(
                "the Spark Connect server was started without Spark's Kafka connector; a session can bring it for "
                "batches, and not for streams, whose tasks do not see the session's jars; start the server with "
                f"{packages(spark.version)[0].coordinate} in spark.jars.packages, or use a classic session"
            )
        if not known:
            _attach_on_server(spark)
            _lent.add(id_)
    elif everywhere and not _loads(_first_loader(classic)):
        _attach(spark, classic, session=not _knows_kafka(spark))
    elif not everywhere and not _knows_kafka(spark):
        _attach(spark, classic, session=True)


def bring(spark: SparkSession, package: Package, known: str, what: str) -> None:
    """Bring another library into a classic session, its executors and the driver's threads, unless it is there.

    Args:
        spark: A classic session.
        package: The library.
        known: A class of it.
        what: What it is, for messages.

    Raises:
        ConnectorMissingError: It cannot be had; says why.
    """
    jvm = _jvm(spark)
    loader = _first_loader(jvm)
    if loader is None or _loads(loader, known):
        return
    offline = "name its jars in spark.jars when the session starts"
    _add(spark, jvm, _resolved(spark, jvm, [package], what, offline), session=True)


def _jvm(spark: SparkSession) -> Any:
    return None if is_connect(spark) else spark.sparkContext._jvm  # noqa: SLF001


def _knows_kafka(spark: SparkSession) -> bool:
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
    except Py4JError as e:
        told = unloadable(str(e))
        if told is None:
            raise
        raise ConnectorMissingError(told) from None
    return True


def unloadable(error: str) -> str | None:
    """Why a connector that is there cannot be loaded, from Java's error, and what to do; None where that is not why."""
    found = _NO_CLASS.search(error)
    if found is None:
        return None
    needed = _NEEDED.format(named=JARS, artifact=_ARTIFACT)
    return (
        f"Spark's Kafka connector is in the session, and cannot be loaded for want of {found[1].replace('/', '.')}: a "
        f"jar is missing, or of another version; {needed}; then start the program again, for Java tries only once"
    )


def _first_loader(jvm: Any) -> Any:
    """The class loader of the application: parent of the sessions' own, and the one of Spark's threads."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = None
    while loader is not None:
        if loader.getClass().getName() == "org.apache.spark.util.MutableURLClassLoader":
            found = loader
        loader = loader.getParent()
    return found


def _loads(loader: Any, name: str = CLASS) -> bool:
    if loader is None:
        return True  # not ours to change; what is missing shows by itself
    try:
        loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


def named_jars(spark: SparkSession) -> list[str] | None:
    """What the user says is to be attached; None where the user says nothing."""
    said = spark.conf.get(JARS, None) or os.environ.get(VARIABLE) or ""
    return [entry.strip() for entry in said.split(",") if entry.strip()] or None


def _attach(spark: SparkSession, jvm: Any, *, session: bool) -> None:
    scala = ".".join(jvm.scala.util.Properties.versionNumberString().split(".")[:2])
    wanted = named_jars(spark)
    if wanted == [PROVIDED]:
        raise ConnectorMissingError(
            f"Spark's Kafka connector is not in the session, and {JARS} says that it is provided; start the session "
            f"with {packages(spark.version, scala)[0].coordinate} in spark.jars.packages, or remove the setting"
        )
    paths = _resolved(spark, jvm, packages(spark.version, scala)) if wanted is None else []
    for entry in wanted or ():
        check_scala(entry, scala)
        if _COORDINATE.fullmatch(entry):
            paths += _resolved(spark, jvm, [Package(entry)])
        else:
            paths += local_jars(entry)
    for path in paths:
        check_scala(Path(path).name, scala)
    _add(spark, jvm, paths, session=session)
    if not _knows_kafka(spark):
        raise ConnectorMissingError(
            f"the jars {', '.join(Path(path).name for path in paths)} were attached, and Spark still finds no Kafka "
            f"connector; {_NEEDED.format(named=JARS, artifact=f'{_ARTIFACT}_{scala}')}"
        )


def _add(spark: SparkSession, jvm: Any, paths: Sequence[str], *, session: bool) -> None:
    """Add jars to the driver's threads, and to a session with its executors."""
    loader = _first_loader(jvm)
    if loader is not None:
        for path in paths:
            loader.addURL(jvm.java.io.File(path).toURI().toURL())
    if session:
        for path in paths:
            spark.sql("ADD JAR '" + path.replace("\\", "\\\\").replace("'", "\\'") + "'")


def _attach_on_server(spark: SparkSession) -> None:
    wanted = named_jars(spark)
    if wanted == [PROVIDED]:
        raise ConnectorMissingError(
            f"Spark's Kafka connector is not on the Connect server, and {JARS} says that it is provided; start the "
            f"server with {packages(spark.version)[0].coordinate} in spark.jars.packages, or remove the setting"
        )
    urls = [package.url for package in packages(spark.version)]
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
    if not _knows_kafka(spark):
        raise ConnectorMissingError(
            "the Connect server took the jars of Spark's Kafka connector but does not find it; start the server with "
            f"{packages(spark.version)[0].coordinate} in spark.jars.packages"
        )


def check_scala(name: str, scala: str) -> None:
    """Look whether a jar or coordinate is made for a version of Scala.

    Raises:
        ConnectorMissingError: It is made for another one.
    """
    found = _SCALA.search(name)
    if found is not None and found[1] != scala:
        raise ConnectorMissingError(
            f"{name} is built for Scala {found[1]}, and this Spark runs on Scala {scala}; name the one that ends in "
            f"_{scala}"
        )


def local_jars(entry: str) -> list[str]:
    """The jars of an entry that names a jar or a folder of jars: by its path, also relative or with ``~``, or address.

    Raises:
        ConnectorMissingError: There is no such file, or no jar in the folder.
    """
    if entry.startswith("file:"):
        entry = unquote(re.sub("^//(localhost)?(?=/)", "", entry.removeprefix("file:")))
    path = Path(entry).expanduser().absolute()
    if path.is_dir():
        found = sorted(str(jar) for jar in path.glob("*.jar"))
        if not found:
            raise ConnectorMissingError(f"the folder {path}, named in {JARS} or {VARIABLE}, holds no jar")
        return found
    if not path.is_file():
        raise ConnectorMissingError(
            f"{path}, named in {JARS} or {VARIABLE}, is no file; give paths of jars, folders of jars, or Maven "
            "coordinates as group:artifact:version, separated by commas"
        )
    return [str(path)]


def ivy_folder(spark: SparkSession) -> Path:
    """Where the jars are kept that kdsl fetches: ``spark.jars.ivy`` where it is set, else in kdsl's cache."""
    named = spark.conf.get("spark.jars.ivy", None)
    return Path(named) if named else cache_dir() / "spark-ivy"


def _resolved(
    spark: SparkSession, jvm: Any, wanted: Sequence[Package], what: str = _CONNECTOR, offline: str = _OFFLINE
) -> list[str]:
    """The jars of some packages, fetched where they are not there yet. ``~/.m2`` is not looked at."""
    folder = ivy_folder(spark)
    maven, none = jvm.org.apache.spark.util.MavenUtils, getattr(jvm.scala, "None$")
    nothing = getattr(none, "MODULE$")
    said = jvm.java.io.ByteArrayOutputStream()
    out = jvm.java.io.PrintStream(said)
    repositories = spark.conf.get("spark.jars.repositories", None)
    found: dict[str, None] = {}
    for package in wanted:
        try:
            settings = maven.buildIvySettings(
                jvm.scala.Some(repositories) if repositories else nothing, jvm.scala.Some(str(folder)), False, out
            )
            left_out = jvm.PythonUtils.toSeq(list(package.without))
            with one_at_a_time(folder / "kdsl.lock"):  # Ivy does not expect company in its folder
                jars = maven.resolveMavenCoordinates(
                    package.coordinate, settings, nothing, not package.alone, left_out, False, out
                )
        except Py4JJavaError as e:
            error = str(e.java_exception.getMessage() or e.java_exception)
            raise ConnectorMissingError(
                _reason(error, said.toString(), package.coordinate, str(folder), what, offline)
            ) from None
        found |= dict.fromkeys(jars.apply(i) for i in range(jars.size()))
    return list(found)


def _reason(
    error: str, said: str, coordinate: str, folder: str, what: str = _CONNECTOR, offline: str = _OFFLINE
) -> str:
    """Why Ivy gave no jars, and what to do, from its error and from what it printed."""
    begin = f"the jars of {what} ({coordinate}) cannot be had"
    # The repository of Spark's packages, which Spark asks as well, is often out of reach and never needed.
    needed = (found for found in _UNREACHABLE.finditer(f"{said}\n{error}") if _SPARK_PACKAGES not in found[0])
    unreachable = next(needed, None)
    if unreachable:
        host = unreachable["host"] or re.sub(r"//[^/@]*@", "//", unreachable["url"])
        why = f" ({unreachable['why']})" if unreachable["why"] else ""
        return (
            f"{begin}: {host} cannot be reached{why}; check the network and the proxy, name a mirror in "
            f"spark.jars.repositories or DEFAULT_ARTIFACT_REPOSITORY, or, without a network, {offline}"
        )
    failed = sorted(set(_FAILED.findall(error)))
    if failed:
        return (
            f"{begin}: the download of {', '.join(map(_plain, failed))} failed: a folder that Ivy looks into has the "
            "descriptions without the jars (a half-filled ~/.m2/repository, which any Maven run leaves behind, does "
            f"that, and so does {folder}); remove them there, or {offline}"
        )
    missing = [f"{_plain(name)} ({why.strip()})" for name, why in _UNRESOLVED.findall(error)]
    if missing:
        return f"{begin}: {', '.join(missing)}; check version and repository, or {offline}"
    return f"{begin}: {error.strip().splitlines()[0] if error.strip() else 'Ivy says nothing'}; or {offline}"


def _plain(name: str) -> str:
    """Ivy's ``group#artifact;version!file.jar`` as a coordinate."""
    return name.split("!")[0].replace("#", ":").replace(";", ":")
