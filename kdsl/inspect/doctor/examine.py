"""Go through the layers from the bottom up; what stands on a broken one is not looked at."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from confluent_kafka import libversion

from kdsl.client.bootstrap import Address, AddressError, parse_address
from kdsl.cluster import Cluster
from kdsl.declare.connector import Transport
from kdsl.errors import KdslError, ResolveError
from kdsl.inspect.doctor import network, tls
from kdsl.inspect.doctor.admin import Admin, NotToldError
from kdsl.inspect.doctor.findings import Finding, error, ok, skipped, warning
from kdsl.inspect.doctor.schemas import schemas
from kdsl.inspect.doctor.tables import reading, writing
from kdsl.plan.model import ReadPlan, WritePlan

_TLS = ("SSL", "SASL_SSL")


def examine(cluster: Cluster, plans: Iterable[ReadPlan | WritePlan] = ()) -> Iterator[Finding]:
    """Look at a cluster, and at what tables need of it.

    Args:
        cluster: The cluster, with the tables' own client properties.
        plans: What is to be read and written there.

    Yields:
        What each check found, as soon as it is known. After an error the checks that stand on it do not come.
    """
    wanted = list(plans)
    yield _versions()
    transport: Transport = "jvm" if wanted and all(plan.transport == "jvm" for plan in wanted) else "librdkafka"
    settings = list(_settings(cluster, transport))
    yield from settings
    if any(f.state == "error" for f in settings):
        return
    yield from _kafka(cluster, wanted, transport)
    yield from _once(schemas(cluster, wanted))


def _kafka(cluster: Cluster, wanted: list[ReadPlan | WritePlan], transport: Transport) -> Iterator[Finding]:
    if transport == "jvm" and (cannot := [p for p in cluster.problems() if p.severity == "error"]):
        message = f"doctor asks as librdkafka does, which cannot use these settings: {cannot[0].message}"
        yield skipped("network and cluster", message, "look with Java's tools (kafka-topics.sh --command-config …)")
        return
    servers: set[Address] = set()
    for finding, address in _bootstrap(cluster):
        yield finding
        if address is not None:
            servers.add(address)
    if not servers:
        return
    login = _login(cluster)
    yield login
    if login.state == "error":
        return
    admin = Admin(cluster)
    try:
        brokers = admin.brokers()
    except NotToldError as e:
        yield error("brokers", f"the cluster does not tell its brokers: {e}", "see the brokers' logs")
        return
    far = list(network.advertised(brokers, servers))
    yield from far
    if any(f.state == "error" for f in far):
        for plan in wanted:
            yield skipped(f"table {plan.table}", "not looked at while brokers cannot be reached")
        return
    yield from _once(f for plan in wanted for f in _table(plan, cluster, admin))


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    told: set[Finding] = set()
    for finding in findings:
        if finding not in told:
            told.add(finding)
            yield finding


def _table(plan: ReadPlan | WritePlan, cluster: Cluster, admin: Admin) -> Iterator[Finding]:
    verb = "read" if isinstance(plan, ReadPlan) else "write"
    try:
        if isinstance(plan, ReadPlan):
            yield from reading(plan, cluster, admin)
        else:
            yield from writing(plan, cluster, admin)
    except (KdslError, NotToldError) as e:
        yield error(f"table {plan.table}", f"cannot {verb}: {e}", "see what the message says")


def _versions() -> Finding:
    parts = {
        "Python": platform.python_version(),
        "kdsl": version("kdsl"),
        "pyspark": version("pyspark"),
        "librdkafka": str(libversion()[0]),
    }
    return ok("versions", ", ".join(f"{name} {number}" for name, number in parts.items()))


def _settings(cluster: Cluster, transport: Transport) -> Iterator[Finding]:
    found = [*cluster.problems(transport), *cluster.unresolved()]
    for problem in found:
        make = error if problem.severity == "error" else warning
        yield make("settings", problem.message, problem.fix)
    if not found:
        yield ok("settings", f"security.protocol {cluster.settings().get('security.protocol', 'PLAINTEXT').upper()}")


def _protocol(cluster: Cluster) -> str:
    return cluster.admin().get("security.protocol", "plaintext").upper()


def _bootstrap(cluster: Cluster) -> Iterator[tuple[Finding, Address | None]]:
    """Each bootstrap server; the address comes where it serves."""
    secured = _protocol(cluster) in _TLS
    settings = cluster.admin() if secured else {}
    findings: list[tuple[Finding, Address | None]] = []
    for text in cluster.bootstrap_servers.split(","):
        try:
            address = parse_address(text)
        except AddressError as e:
            findings.append((error("bootstrap.servers", str(e), "write host:port, several with commas between"), None))
            continue
        found = [network.reachable(address)]
        if found[-1].state == "ok" and (spoken := network.language(address, tls=secured)):
            found.append(spoken)
        if found[-1].state == "ok" and secured:
            found.append(tls.handshake(address, settings))
        good = all(f.state != "error" for f in found)
        findings += [(f, address if good and f is found[-1] else None) for f in found]
    serving = any(address is not None for _, address in findings)
    for finding, served in findings:
        if finding.state == "error" and serving:  # one of several is enough to begin with
            yield warning(finding.check, finding.message, finding.fix), None
        else:
            yield finding, served


def _login(cluster: Cluster) -> Finding:
    from kdsl.run.cluster.brokers import Brokers

    mechanism = cluster.admin().get("sasl.mechanism", "")
    try:
        names = Brokers(cluster, "doctor").names()
    except ResolveError as e:
        return error("login", str(e), "correct the settings")
    except KdslError as e:
        return error("login", str(e).removeprefix("doctor: "), "see the settings of the login, and the brokers' logs")
    how = f"accepted ({mechanism})" if mechanism and "SASL" in _protocol(cluster) else "none is asked for"
    return ok("login", f"{how}; {len(names)} topic{'' if len(names) == 1 else 's'} can be seen")
