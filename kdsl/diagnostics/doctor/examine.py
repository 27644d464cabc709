"""Checks the layers from the bottom up; checks that depend on a broken layer are skipped."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import attrs
from confluent_kafka import libversion

from kdsl.client_settings.bootstrap import Address, AddressError, parse_address
from kdsl.cluster import Cluster
from kdsl.declare.connector import Transport
from kdsl.diagnostics.clients import needs_jvm, open_admin
from kdsl.diagnostics.doctor import network, tls
from kdsl.diagnostics.doctor.admin import Inspector, NotAnsweredError
from kdsl.diagnostics.doctor.findings import Finding, error, ok, skip, warning
from kdsl.diagnostics.doctor.java_admin import inspect_with
from kdsl.diagnostics.doctor.schemas import check_schemas
from kdsl.diagnostics.doctor.tables import check_read, check_write
from kdsl.distribution import NAME
from kdsl.errors import KdslError, ResolveError, pluralize
from kdsl.extras import MissingPackageError
from kdsl.java import JavaError, find_java, java_version
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.session import problem_of_python
from kdsl.spark_versions import INSTALL, oldest_java, pyspark_version, refusal, spark_version

_TLS = ("SSL", "SASL_SSL")
_LOGIN = ("sasl.", "connector.", "security.kerberos.")


def examine(cluster: Cluster, plans: Iterable[ReadPlan | WritePlan] = ()) -> Iterator[Finding]:
    """Check a cluster, and what tables need of it.

    If only Java's client can log in, it runs in the active Spark session, or one is started.

    Args:
        cluster: The cluster, with the tables' own client properties.
        plans: What is to be read and written there.

    Yields:
        The finding of each check, as soon as it is known. Errors of kdsl, the cluster and the registries are findings,
        too. After an error, the checks that depend on it are left out.
    """
    wanted = list(plans)
    yield _report_versions()
    yield _check_spark(wanted)
    yield from _check_programs()
    on_jvm = needs_jvm(cluster) or (wanted and all(plan.transport == "jvm" for plan in wanted))
    settings = list(_check_settings(cluster, "jvm" if on_jvm else "librdkafka"))
    yield from settings
    if any(f.state == "error" for f in settings):
        return
    yield from _check_brokers(cluster, wanted)
    yield from _once(check_schemas(cluster, wanted))


def _check_brokers(cluster: Cluster, wanted: list[ReadPlan | WritePlan]) -> Iterator[Finding]:
    """Check the brokers and the login, and then each table; each finding of tables comes once.

    If the cluster does not answer, tables have no finding; if an advertised address cannot be reached, each has one
    that says that it is skipped. Errors of kdsl and the cluster are findings.
    """
    servers: set[Address] = set()
    for finding, address in _check_bootstrap(cluster):
        yield finding
        if address is not None:
            servers.add(address)
    if not servers:
        return
    login, client = _check_login(cluster)
    yield login
    if client is None:
        return
    inspector = inspect_with(client, cluster)
    try:
        brokers = inspector.brokers()
    except NotAnsweredError as e:
        yield error("brokers", f"the cluster does not list its brokers: {e}", "check the brokers' logs")
        return
    far = list(network.check_advertised(brokers, servers))
    yield from far
    if any(f.state == "error" for f in far):
        yield from _once(skip(f"table {plan.table}", "not checked while brokers cannot be reached") for plan in wanted)
        return
    written = {plan.table for plan in wanted if isinstance(plan, WritePlan)}
    yield from _once(
        f for plan in wanted for f in _check_table(plan, cluster, inspector, written=plan.table in written)
    )


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield each finding once."""
    seen: set[Finding] = set()
    for finding in findings:
        if finding not in seen:
            seen.add(finding)
            yield finding


def _check_table(
    plan: ReadPlan | WritePlan, cluster: Cluster, inspector: Inspector, *, written: bool
) -> Iterator[Finding]:
    """Check a table; an error of kdsl is a finding. ``written`` is as for `check_read`."""
    verb = "read" if isinstance(plan, ReadPlan) else "write"
    try:
        if isinstance(plan, ReadPlan):
            yield from check_read(plan, cluster, inspector, written=written)
        else:
            yield from check_write(plan, cluster, inspector)
    except (KdslError, NotAnsweredError) as e:
        yield error(f"table {plan.table}", f"cannot {verb}: {e}", "fix the cause that the message names")


def _report_versions() -> Finding:
    """Report the versions of Python, kdsl and librdkafka, and that of PySpark if it is installed."""
    spark = _find_pyspark()
    parts = {
        "Python": platform.python_version(),
        "kdsl": version(NAME),
        **({} if spark is None else {"pyspark": spark}),
        "librdkafka": str(libversion()[0]),
    }
    return ok("versions", ", ".join(f"{name} {number}" for name, number in parts.items()))


def _find_pyspark() -> str | None:
    """Return the version of the installed PySpark; None if there is none."""
    try:
        return pyspark_version()
    except MissingPackageError:
        return None


def _check_spark(plans: list[ReadPlan | WritePlan]) -> Finding:
    """Check whether kdsl supports the installed PySpark, and was tested with it; without one nothing is wrong."""
    name, number = "Spark", _find_pyspark()
    if number is None:
        advice = "install 'kdsl-kafka[spark]', or use a platform with Spark"
        return ok(name, f"PySpark is not installed here; jobs need it: {advice}")
    tested = spark_version(number)
    if tested is None:
        return error(name, refusal("PySpark is", number) or "", INSTALL)
    jars = ""
    if any(plan.transport == "jvm" for plan in plans):
        jars = f", the transport jvm with {' and '.join(package.coordinate for package in tested.connector)}"
    if tested.version == number:
        return ok(name, f"kdsl is tested with {number}{jars}")
    message = f"kdsl supports {number}, but is tested with {tested.version}{jars}"
    return warning(name, message, f"use PySpark {tested.version}, or test your own tables first")


def _check_programs() -> Iterator[Finding]:
    """Check the Java and the Python that Spark runs on this machine; nothing without PySpark, or with a remote server.

    Warnings, because a cluster or a server may run the jobs.
    """
    number = _find_pyspark()
    if number is None or "SPARK_REMOTE" in os.environ:
        return
    try:
        java = find_java(f"PySpark {number}", oldest_java(number))
        yield ok("Java", f"{java} is Java {java_version(java)}")
    except JavaError as e:
        problem, _, fix = str(e).rpartition("; ")
        yield warning("Java", problem, fix)
    program = os.environ.get("PYSPARK_PYTHON") or "python3"
    if reason := problem_of_python(program):
        fix = 'write os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts, or activate the virtual'
        message = f"Spark runs {program!r} in its workers ({reason}), and this Python is {sys.executable}"
        yield warning("PYSPARK_PYTHON", message, f"{fix} environment; the commands of kdsl set it themselves")
    else:
        yield ok("PYSPARK_PYTHON", f"Spark's workers on this machine run {program!r}, which has kdsl")


def _check_settings(cluster: Cluster, transport: Transport) -> Iterator[Finding]:
    """Report the problems of the client settings, also references to secrets that this process cannot resolve.

    Without problems the security protocol is reported.
    """
    problems = [*cluster.problems(transport), *cluster.check_references()]
    for problem in problems:
        make = error if problem.severity == "error" else warning
        yield make("settings", problem.message, problem.fix)
    if not problems:
        yield ok("settings", f"security.protocol {cluster.settings().get('security.protocol', 'PLAINTEXT').upper()}")


def _without_login(cluster: Cluster) -> Cluster:
    """Return the cluster without its login, with SSL or PLAINTEXT: settings that both kinds of clients understand."""
    properties = {key: value for key, value in cluster.properties.items() if not key.startswith(_LOGIN)}
    protocol = str(cluster.settings().get("security.protocol", "PLAINTEXT")).upper()
    properties["security.protocol"] = "SSL" if protocol in _TLS else "PLAINTEXT"
    return attrs.evolve(cluster, properties=properties)


def _check_bootstrap(cluster: Cluster) -> Iterator[tuple[Finding, Address | None]]:
    """Check the name, the port, the protocol and the TLS handshake of each bootstrap server.

    The last finding of a server comes with its address, if it can be used, and others with None. All are checked before
    the first finding is yielded. Errors become warnings if another server can be used. Settings that cannot be
    translated for librdkafka, as when a file of certificates does not exist, are the only findings.
    """
    try:
        settings = (_without_login(cluster) if needs_jvm(cluster) else cluster).admin()
    except ResolveError as e:
        for problem in e.problems:
            yield error("settings", problem.message, problem.fix), None
        return
    secured = settings.get("security.protocol", "plaintext").upper() in _TLS
    findings: list[tuple[Finding, Address | None]] = []
    for text in cluster.bootstrap_servers.split(","):
        try:
            address = parse_address(text)
        except AddressError as e:
            findings.append((error("bootstrap.servers", str(e), "write host:port, several separated by commas"), None))
            continue
        of_server = [network.check_reachable(address)]
        if of_server[-1].state == "ok" and (spoken := network.check_protocol(address, tls=secured)):
            of_server.append(spoken)
        if of_server[-1].state == "ok" and secured:
            of_server.append(tls.check_handshake(address, settings))
        good = all(f.state != "error" for f in of_server)
        findings += [(f, address if good and f is of_server[-1] else None) for f in of_server]
    serving = any(address is not None for _, address in findings)
    for finding, served in findings:
        if finding.state == "error" and serving:  # one reachable server is enough
            yield warning(finding.check, finding.message, finding.fix), None
        else:
            yield finding, served


def _check_login(cluster: Cluster) -> tuple[Finding, ClusterAdmin | None]:
    """Open an admin client and ask for the topics; return the finding, and the client, or None if that failed.

    The client need not be closed.
    """
    try:
        admin = open_admin(cluster, "doctor")
        names = admin.names()
    except ResolveError as e:
        return error("login", str(e), "correct the settings"), None
    except KdslError as e:
        fix = "check the settings of the login, and the brokers' logs"
        return error("login", str(e).removeprefix("doctor: "), fix), None
    settings = cluster.java("admin").settings
    how = "no login is required"
    if settings.get("security.protocol", "").upper().startswith("SASL_"):
        how = f"accepted ({settings.get('sasl.mechanism', 'GSSAPI')})"
    by = "" if isinstance(admin, LibrdkafkaAdmin) else ", by Java's client"
    return ok("login", f"{how}{by}; {pluralize(len(names), 'topic is', 'topics are')} visible"), admin
