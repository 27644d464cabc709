"""The versions of Spark that kdsl supports, and the jars that each was tested with.

The transport ``jvm``, Delta, ``kdsl doctor`` and docs/spark-versions.md all read this one table.
"""

from __future__ import annotations

import re

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
    """

    version: str
    connector: tuple[Package, ...]
    delta: Package | None

    @property
    def minor(self) -> str:
        """The version without its patch release, as ``4.2``."""
        return _minor(self.version)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


_TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_CONNECTOR = (
    Package("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", without=(_TOKENS,)),
    # Not every repository has 4.2.0 of the token provider. It serves delegation tokens only, and this version works.
    Package(f"{_TOKENS}:4.0.0", alone=True),
)
_DELTA = Package("io.delta:delta-spark_4.2_2.13:4.4.0")

TESTED: tuple[SparkVersion, ...] = (
    SparkVersion("4.2.0", _CONNECTOR, _DELTA),
    # The connector and Delta are published for 4.2.0 only. The same connector passes the tests on later versions.
    SparkVersion("4.2.1", _CONNECTOR, _DELTA),
    # Delta 4.4.0 calls a constructor of LogicalRDD that Spark 4.3 no longer has (NoSuchMethodError at every read).
    SparkVersion("4.3.0", _CONNECTOR, None),
)
"""The tested versions, oldest first."""

SUPPORTED = " and ".join(dict.fromkeys(tested.minor for tested in TESTED))
"""The supported versions in a sentence, as ``4.2 and 4.3``: every patch release of the tested minor versions."""


_oldest, _newest = (tested.minor.split(".") for tested in (TESTED[0], TESTED[-1]))
SUPPORTED_RANGE = f">={'.'.join(_oldest)},<{_newest[0]}.{int(_newest[1]) + 1}"
"""The same as a requirement of pip."""


INSTALL = f"install 'pyspark{SUPPORTED_RANGE}'"
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


def refusal(subject: str, version: str) -> str | None:
    """Why kdsl does not run on a version of Spark, naming the versions that it supports; None if it supports it.

    Args:
        subject: What has the version, with its verb, as ``PySpark is``.
        version: The version.
    """
    return f"kdsl supports Spark {SUPPORTED}, and {subject} {version}" if spark_version(version) is None else None


def pyspark_version() -> str:
    """The version of the installed PySpark, which it states itself.

    Raises:
        MissingPackageError: There is none.
    """
    with explain_missing_package("Spark"):
        from pyspark.version import __version__

    return __version__
