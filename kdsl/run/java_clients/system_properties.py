"""System properties that Java's clients need in the JVMs of a session: krb5.conf, and the allowed token endpoints.

They belong to the JVM and not to a client. In the driver they can be set while it runs; an executor has them from its
start, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdsl.client_settings.java_login import KRB5
from kdsl.client_settings.machine import Machine
from kdsl.client_settings.to_java import java_settings
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.secrets import resolve
from kdsl.spark_internals.session import is_connect, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTORS = "spark.executor.extraJavaOptions"


class SystemPropertyError(KdslError):
    """A JVM of the session lacks a property that a login needs."""


def set_system_properties(spark: SparkSession, cluster: Cluster, table: str) -> None:
    """Set the properties that the login of a cluster needs in the driver's JVM; check that the other JVMs have them.

    They name krb5.conf and the allowed token endpoints. Most logins need none: then nothing is set or checked. Key
    files at an address, such as krb5.conf, are fetched to this machine in any case. Of the other JVMs only the names in
    their start options are checked. On Spark Connect nothing is set.
    """
    # A krb5.conf at a URL is fetched here, and then has a path.
    wanted = java_settings(cluster.settings(), "consumer", resolve, Machine()).system
    if not wanted:
        return
    options = " ".join(f"-D{name}={text}" for name, text in wanted.items())
    if is_connect(spark):
        java_options = f"{spark.conf.get(_EXECUTORS, '') or ''}"
        if not all(f"-D{name}=" in java_options for name in wanted):
            raise SystemPropertyError(
                f"{table}: the login needs properties of the server's JVMs, which a session of Spark Connect cannot "
                f"set; start the server with --conf spark.driver.extraJavaOptions='{options}' and --conf "
                f"{_EXECUTORS}='{options}'"
            )
        return
    context: Any = spark.sparkContext
    if not context.master.startswith("local"):
        java_options = context.getConf().get(_EXECUTORS, "")
        missing = [name for name in wanted if f"-D{name}=" not in java_options]
        if missing:
            raise SystemPropertyError(
                f"{table}: the executors' JVMs were started without {missing[0]}, which the login needs; start the "
                f"session with --conf {_EXECUTORS}='{options}'"
            )
    _set_in_jvm(jvm_of(spark), wanted, table)


def _set_in_jvm(jvm: Any, wanted: Any, table: str) -> None:
    """Set the properties of a JVM; a value is appended to an earlier one that lacks it, except that of krb5.conf."""
    system = jvm.java.lang.System
    for name, text in wanted.items():
        current = system.getProperty(name)
        if current is None or name != KRB5:
            known = [] if current is None else current.split(",")
            if text not in known:
                system.setProperty(name, ",".join([*known, text]))
        elif current != text:
            raise SystemPropertyError(
                f"{table}: the driver's JVM reads {current} as krb5.conf, but the cluster names {text}; a JVM has only "
                "one: put both realms into one file, or read the clusters in separate Spark applications"
            )
