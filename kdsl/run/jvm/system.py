"""System properties that Java's clients need in the JVMs of a session: where krb5.conf is, where tokens may come from.

They belong to the JVM and not to a client. In the driver they can be set while it runs; an executor has had them since
its start, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdsl.client.java import java_settings
from kdsl.client.java_login import KRB5
from kdsl.client.machine import ThisMachine
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.run.session import is_connect
from kdsl.secrets import resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTORS = "spark.executor.extraJavaOptions"


class SystemPropertyError(KdslError):
    """A JVM of the session lacks a property that a login needs."""


def set_system_properties(spark: SparkSession, cluster: Cluster, table: str) -> None:
    """Let the JVMs of a session have what the login of a cluster needs.

    Args:
        spark: The session.
        cluster: Whose login.
        table: The table's name, for messages.

    Raises:
        SystemPropertyError: Executors, or the server of a Connect session, were started without a property, or the
            driver has another value already.
    """
    # A krb5.conf at an address is fetched here, so that its path is known.
    wanted = java_settings(cluster.settings(), "consumer", resolve, ThisMachine()).system
    if not wanted:
        return
    options = " ".join(f"-D{name}={text}" for name, text in wanted.items())
    if is_connect(spark):
        given = f"{spark.conf.get(_EXECUTORS, '') or ''}"
        if not all(f"-D{name}=" in given for name in wanted):
            raise SystemPropertyError(
                f"{table}: the login needs properties of the server's JVMs, which a session of Spark Connect cannot "
                f"set; start the server with --conf spark.driver.extraJavaOptions='{options}' and --conf "
                f"{_EXECUTORS}='{options}'"
            )
        return
    context: Any = spark.sparkContext
    if not context.master.startswith("local"):
        given = context.getConf().get(_EXECUTORS, "")
        missing = [name for name in wanted if f"-D{name}=" not in given]
        if missing:
            raise SystemPropertyError(
                f"{table}: the executors' JVMs were started without {missing[0]}, which the login needs; start the "
                f"session with --conf {_EXECUTORS}='{options}'"
            )
    _set(context._jvm, wanted, table)  # noqa: SLF001


def _set(jvm: Any, wanted: Any, table: str) -> None:
    system = jvm.java.lang.System
    for name, text in wanted.items():
        held = system.getProperty(name)
        if held is None or name != KRB5:
            known = [] if held is None else held.split(",")
            if text not in known:
                system.setProperty(name, ",".join([*known, text]))
        elif held != text:
            raise SystemPropertyError(
                f"{table}: the driver's JVM reads {held} as krb5.conf, and the cluster names {text}; a JVM has one: "
                "put both realms into one file, or use a session of its own"
            )
