"""The versions of Spark that kdsl supports, what each lacks, and the jars that each was tested with.

The transport ``jvm``, Delta, Iceberg, ``kdsl doctor`` and docs/spark-versions.md all read this one table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from kdsl.errors import KdslError
from kdsl.extras import explain_missing_package


class SparkVersionError(KdslError):
    """kdsl does not support this version of Spark."""


@attrs.frozen
class Package:
    """An artifact of a Maven repository, with its dependencies.

    Attributes:
        coordinate: ``group:artifact:version``.
        without: Dependencies that are left out, as ``group:artifact``.
        alone: Whether all dependencies are left out.
    """

    coordinate: str
    without: tuple[str, ...] = ()
    alone: bool = False

    @property
    def url(self) -> str:
        """The artifact as Spark's ``ADD JAR`` takes it."""
        left_out = f"exclude={','.join(self.without)}&" if self.without else ""
        return f"ivy://{self.coordinate}?{left_out}transitive={'false' if self.alone else 'true'}"


@attrs.frozen
class SparkVersion:
    """A version of Spark on which the tests pass.

    Attributes:
        version: The version, as ``4.2.0``.
        connector: The packages of Spark's Kafka connector, which the transport ``jvm`` needs.
        delta: The package of Delta, which ``delta(...)`` needs; None if no published one works.
        iceberg: The package of Iceberg's runtime, which ``iceberg(...)`` needs; None if none is published.
    """

    version: str
    connector: tuple[Package, ...]
    delta: Package | None
    iceberg: Package | None = None

    @property
    def minor(self) -> str:
        """The version without its patch release, as ``4.2``."""
        return _minor(self.version)


def _minor(version: str) -> str:
    """The first two numbers of a version, as ``4.2``."""
    return ".".join(version.split(".")[:2])


@attrs.frozen
class Feature:
    """What later versions of Spark have, and earlier ones that kdsl supports lack.

    Attributes:
        name: What users know it by, as the subject of a sentence.
        since: The first minor version that has it, as ``4.2``.
        otherwise: How kdsl does without it; empty if it refuses what needs it.
        instead: What to write instead of what kdsl refuses, as an imperative; empty if there is nothing.
    """

    name: str
    since: str
    otherwise: str = ""
    instead: str = ""

    def is_in(self, version: str) -> bool:
        """Whether a version of Spark, as ``4.1.1``, has it."""
        return _numbers(version) >= _numbers(self.since)


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; (0, 0) if it does not begin with two."""
    number = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if number is None else (int(number[1]), int(number[2]))


PYTHON_SOURCES = Feature(
    "The transport `librdkafka` (and the data source `kdsl`)",
    "4.0",
    "tables that declare no transport use `jvm`; those that declare `librdkafka` are refused when they are first read "
    "or written, and so is what the transport `jvm` lacks ([transports](transports.md))",
    "write transport='jvm' ('transport' = 'jvm'), or leave it out",
)
DATAGEN = Feature(
    "A stream of the connector `datagen`", "4.0", instead="run it as a batch (SET 'execution.runtime-mode' = 'batch')"
)
VARIANT = Feature(
    "SQL's JSON_VALUE and JSON_EXISTS", "4.0", instead="read the JSON text in Spark's SQL, with get_json_object"
)
REALTIME = Feature("Real-time mode (`latency` realtime)", "4.2", instead="write latency='micro-batch'")
# On 3.5 a batch cannot be named in its snapshot by a setting, and merges that are repeated miss rows of other writers.
ICEBERG = Feature(
    "A changelog in an Iceberg table (`iceberg`)", "4.0", instead="write into a Delta table with delta(...)"
)
READ_LIMITS = Feature(
    "The limits of a batch (`max_records_per_trigger`, `max_records_per_partition`)",
    "4.2",
    "the first batch after each start of a query has no limit, and `availableNow` runs one batch: the one that was cut "
    "off in the run before, if there is one, and otherwise all records that are there",
)
OFFSET_REPORTS = Feature(
    "The lag in a stream's progress reports and metrics", "4.2", "the metrics of lag are missing; `kdsl lag` has them"
)
BOUNDED_STREAMS = Feature("A stream with a declared end (`bounded=`, `scan.bounded.mode`)", "4.2")
STREAM_WRITER = Feature(
    "The writer of Arrow batches for streams",
    "4.1",
    "streams are written by `foreachBatch` with the writer for batches; exactly-once stages each batch beside the "
    "checkpoint",
)
SOURCE_NAMES = Feature(
    "Sources with names in a checkpoint (`spark.sql.streaming.queryEvolution.enableSourceEvolution`)",
    "4.2",
    "sources have no names, and no table can join or leave a checkpoint",
)
STATE_READER = Feature(
    "The comparison of a query with the rows that its checkpoint has stored (joins of streams)",
    "4.0",
    "no warning names the changed columns before the first batch, which fails",
)
PIPELINES = Feature("A pipeline (`kdsl.pipelines`)", "4.1")
AUTO_CDC = Feature("An AUTO CDC flow (`kdsl.pipelines.auto_cdc`)", "4.2")
# Before, a listener runs on the server, and what kdsl does after each batch needs it in the client.
CONNECT_STREAMS = Feature("A stream over Spark Connect", "4.0", instead="use a classic session")
TIME_TYPE = Feature("A column of the type TIME", "4.1")
REPARTITION_BY_ID = Feature(
    "Partitions by number (`repartitionById`)", "4.1", "the rows of each writer are read apart from the staged batch"
)
FEATURES: tuple[Feature, ...] = (
    READ_LIMITS,
    OFFSET_REPORTS,
    BOUNDED_STREAMS,
    SOURCE_NAMES,
    AUTO_CDC,
    REALTIME,
    ICEBERG,
    STREAM_WRITER,
    REPARTITION_BY_ID,
    STATE_READER,
    PIPELINES,
    TIME_TYPE,
    PYTHON_SOURCES,
    CONNECT_STREAMS,
    DATAGEN,
    VARIANT,
)
"""What not all supported versions have."""


def _connector(version: str, tokens: str = "4.0.0", scala: str = "2.13") -> tuple[Package, ...]:
    """The packages of a version of Spark's connector, with a version of the token provider, for a version of Scala."""
    provider = f"org.apache.spark:spark-token-provider-kafka-0-10_{scala}"
    return (
        Package(f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}", without=(provider,)),
        # Not every repository has each version of the token provider. It serves delegation tokens only, and this works.
        Package(f"{provider}:{tokens}", alone=True),
    )


def _delta(minor: str) -> Package:
    """Delta for a minor version of Spark."""
    return Package(f"io.delta:delta-spark_{minor}_2.13:4.4.0")


def _iceberg(minor: str, version: str) -> Package:
    """Iceberg's runtime for a minor version of Spark, one jar with all that it needs."""
    return Package(f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{version}", alone=True)


_LIBRARIES_3_5 = (
    _connector("3.5.7", tokens="3.5.7", scala="2.12"),
    Package("io.delta:delta-spark_2.12:3.3.3"),
)
_LIBRARIES_4_0 = _delta("4.0"), _iceberg("4.0", "1.11.0")
_LIBRARIES_4_1 = _delta("4.1"), _iceberg("4.1", "1.12.0")
_CONNECTOR, _DELTA = _connector("4.2.0"), _delta("4.2")
TESTED: tuple[SparkVersion, ...] = (
    SparkVersion("3.5.7", *_LIBRARIES_3_5),
    # The newest connector that is published.
    SparkVersion("3.5.9", *_LIBRARIES_3_5),
    SparkVersion("4.0.1", _connector("4.0.1"), *_LIBRARIES_4_0),
    # The newest connector that is published.
    SparkVersion("4.0.5", _connector("4.0.4"), *_LIBRARIES_4_0),
    SparkVersion("4.1.1", _connector("4.1.1"), *_LIBRARIES_4_1),
    SparkVersion("4.1.4", _connector("4.1.3"), *_LIBRARIES_4_1),
    SparkVersion("4.2.0", _CONNECTOR, _DELTA),
    # Later connectors are not published, nor later Deltas. The same connector passes the tests on later versions.
    SparkVersion("4.2.1", _CONNECTOR, _DELTA),
    # Delta 4.4.0 calls a constructor of LogicalRDD that Spark 4.3 no longer has (NoSuchMethodError at every read).
    SparkVersion("4.3.0", _CONNECTOR, None),
)
"""The tested versions, oldest first."""

_minors = [*dict.fromkeys(tested.minor for tested in TESTED)]
SUPPORTED = f"{', '.join(_minors[:-1])} and {_minors[-1]}"
"""The supported versions in a sentence, as ``4.2 and 4.3``: every patch release of the tested minor versions."""


_oldest = next(tested.minor for tested in TESTED if PYTHON_SOURCES.is_in(tested.version))
_newest = [tested.minor for tested in TESTED if tested.delta is not None][-1].split(".")
INSTALLED_RANGE = f">={_oldest},<{_newest[0]}.{int(_newest[1]) + 1}"
"""The versions of PySpark that the extra ``spark`` may install, as a requirement of pip: those with both transports
and Delta."""


INSTALL = f"install 'pyspark{INSTALLED_RANGE}'"
"""What to do about a PySpark that is not supported."""


def spark_version(version: str) -> SparkVersion | None:
    """The tested version that represents a version of Spark: the same one, or else the newest of its minor version.

    Args:
        version: The version as Spark gives it, also with a vendor's suffix: ``4.2.0``, ``4.2.0-amzn-1``.

    Returns:
        None if kdsl does not support the version.
    """
    number = re.match(r"\d+\.\d+(\.\d+)?", version)
    same_minor = [tested for tested in TESTED if number is not None and tested.minor == _minor(number[0])]
    exact = [tested for tested in same_minor if number is not None and tested.version == number[0]]
    return next(iter((*exact, *reversed(same_minor))), None)


def oldest_java(version: str) -> int:
    """The oldest Java that a version of Spark runs on: 17 since Spark 4.0, before that 8."""
    return 17 if _numbers(version) >= (4,) else 8


def list_working(package: Callable[[SparkVersion], Package | None]) -> str:
    """The minor versions that a library works with, in a sentence, each with the library's newest coordinate.

    Empty if there are none.

    Args:
        package: Returns the library's package for a tested version; None if it does not work there.
    """
    working = {tested.minor: library for tested in TESTED if (library := package(tested)) is not None}
    return " or ".join(f"{minor} ({library.coordinate})" for minor, library in working.items())


def refusal(subject: str, version: str) -> str | None:
    """Why kdsl does not run on a version of Spark, naming the versions that it supports; None if it supports it.

    Args:
        subject: What has the version, with its verb, as ``PySpark is``.
        version: The version.
    """
    return f"kdsl supports Spark {SUPPORTED}, and {subject} {version}" if spark_version(version) is None else None


def pyspark_version() -> str:
    """The version of the installed PySpark, which it states itself."""
    with explain_missing_package("Spark"):
        from pyspark.version import __version__

    return __version__


def is_installed(feature: Feature) -> bool:
    """Whether the installed PySpark has a feature; True without PySpark, where nothing runs.

    PySpark is not imported for that.
    """
    module: Any = sys.modules.get("pyspark.version")
    version = _read_installed_version() if module is None else module.__version__
    return version is None or feature.is_in(version)


@cache
def _read_installed_version() -> str | None:
    """The version of the installed PySpark, from the text of its module; None if there is none that can be read."""
    try:
        package = find_spec("pyspark")
    except ModuleNotFoundError:
        return None
    if package is None or package.origin is None:
        return None
    loader: Any = package.loader
    try:
        text: bytes = loader.get_data(str(Path(package.origin).with_name("version.py")))
    except (AttributeError, OSError):
        return None
    version = re.search(rb"""^__version__.*=\s*["']([\w.+-]+)["']""", text, re.MULTILINE)
    return None if version is None else version[1].decode()


def require(feature: Feature, version: str, subject: str) -> None:
    """Check that a version of Spark has what a table needs.

    Args:
        feature: What is needed.
        version: The version of the session's Spark.
        subject: What needs it, for the message, such as the name of a table.
    """
    if not feature.is_in(version):
        name = f"{feature.name[0].lower()}{feature.name[1:]}"
        instead = f"; {feature.instead}" if feature.instead else ""
        raise SparkVersionError(
            f"{subject}: {name} needs Spark {feature.since} or newer, and this is {version}{instead}"
        )
