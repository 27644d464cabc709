"""A Kafka Connect worker of its own, with Debezium's connector for Postgres."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from kdsl.errors import KdslError
from kdsl.java import find_java
from kdsl.testing.ports import HOST, free_port
from kdsl.testing.service import LocalService, ServiceProcess
from tests.debezium.connect_jars import find_connect
from tests.postgres import PASSWORD, Postgres

JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = "io.apicurio.registry.utils.converter.AvroConverter"


class ConnectWorker(LocalService):
    """A standalone worker on the loopback interface; a context manager.

    Its connectors outlive a kill: `run` gives them back to the new process, which goes on at their last flushed
    offsets, so that events since then come twice.

    Args:
        bootstrap_servers: The Kafka that it writes to.
        flush_interval_ms: How often it writes its offsets down; a kill makes the events since then come twice.
    """

    _error = KdslError
    _folder_prefix = "kdsl-connect-"

    def __init__(self, bootstrap_servers: str, flush_interval_ms: int = 2000) -> None:
        super().__init__(timeout=300.0)
        self._bootstrap = bootstrap_servers
        self._flush_interval_ms = flush_interval_ms
        self._connectors: dict[str, dict[str, str]] = {}
        self._port = free_port()
        self._process: ServiceProcess | None = None

    def _start_processes(self) -> None:
        self._process = ServiceProcess("Kafka Connect", self.data_dir / "connect.log")
        self.run()

    def _end_processes(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _disown_processes(self) -> None:
        if self._process is not None:
            self._process.disown()

    def run(self) -> None:
        """Start the process with the connectors that were created before, and wait until they run."""
        assert self._process is not None
        java = find_java()
        jars = find_connect(java)
        properties = {
            "bootstrap.servers": self._bootstrap,
            "key.converter": JSON,
            "value.converter": JSON,
            "offset.storage.file.filename": str(self.data_dir / "offsets"),
            "offset.flush.interval.ms": str(self._flush_interval_ms),
            "plugin.path": str(jars.plugins),
            "listeners": f"http://{HOST}:{self._port}",
        }
        config = self.data_dir / "worker.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
        command = [
            str(java),
            *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            self.mark,
            *("-cp", f"{jars.libs}/*", "org.apache.kafka.connect.cli.ConnectStandalone", str(config)),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        self._process.spawn(command, environment, self.data_dir)
        self._wait_until("the worker answers", lambda: self._ask("GET", "/connectors") is not None)
        for name in self._connectors:
            self._put(name)

    def kill(self) -> None:
        """End the process at once, as a power cut would (SIGKILL)."""
        self._end_processes()

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, and wait until its task runs."""
        self._connectors[name] = dict(config)
        self._put(name)

    def delete(self, name: str) -> None:
        """Delete a connector; its replication slot stays."""
        del self._connectors[name]
        self._ask("DELETE", f"/connectors/{name}")

    def failure(self, name: str) -> str | None:
        """Why a connector's task has failed; None while it runs."""
        status = self._ask("GET", f"/connectors/{name}/status") or {}
        traces = [task.get("trace", "") for task in status.get("tasks", ()) if task["state"] == "FAILED"]
        return traces[0] if traces else None

    def wait_for_offsets(self, name: str) -> None:
        """Wait until a connector's offsets after its snapshot are stored.

        After a kill before that it would take another snapshot, which does not have the deletes in between.
        """
        self._wait_until(f"the offsets of connector {name!r} are stored", lambda: self._has_offsets(name))

    def _has_offsets(self, name: str) -> bool:
        entries = (self._ask("GET", f"/connectors/{name}/offsets") or {}).get("offsets", ())
        return any(entry["offset"] and not entry["offset"].get("snapshot") for entry in entries)

    def _put(self, name: str) -> None:
        self._wait_until(
            f"connector {name!r} is taken",
            lambda: self._ask("PUT", f"/connectors/{name}/config", self._connectors[name]) is not None,
        )
        self._wait_until(f"connector {name!r} runs", lambda: self._runs(name))

    def _runs(self, name: str) -> bool:
        status = self._ask("GET", f"/connectors/{name}/status") or {}
        states = [task["state"] for task in status.get("tasks", ())]
        assert "FAILED" not in states, self.failure(name)
        return states == ["RUNNING"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The worker's answer; None while it does not answer, or rebalances."""
        try:
            answer = httpx.request(method, f"http://{HOST}:{self._port}{path}", json=body, timeout=120, trust_env=False)
        except httpx.TransportError:
            return None
        if answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT, httpx.codes.SERVICE_UNAVAILABLE):
            return None
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else {}

    def _wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        assert self._process is not None
        self._process.wait_until(condition, self._timeout, lambda message: AssertionError(f"{what}: {message}"))


def postgres_connector(name: str, postgres: Postgres, tables: str, **more: str) -> dict[str, str]:
    """The configuration of a connector, with Debezium's defaults except what a test needs.

    Args:
        name: Its name, its replication slot's, and the prefix of its topics.
        postgres: The server that it reads.
        tables: The tables, as ``table.include.list`` has them.
        **more: Further settings, with ``__`` in place of each dot.
    """
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": HOST,
        "database.port": str(postgres.port),
        "database.user": "kdsl",
        "database.password": PASSWORD,
        "database.dbname": "postgres",
        "topic.prefix": name,
        "slot.name": name.replace("-", "_"),
        "publication.name": name.replace("-", "_"),
        "publication.autocreate.mode": "filtered",
        "table.include.list": tables,
        "poll.interval.ms": "50",
        "topic.creation.enable": "true",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        **json_converters(schemas=False),
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def json_converters(*, schemas: bool) -> dict[str, str]:
    """Kafka Connect's JSON converter for keys and values, with or without the schema in each message."""
    enabled = str(schemas).lower()
    return {
        f"{part}.converter{end}": value
        for part in ("key", "value")
        for end, value in (("", JSON), (".schemas.enable", enabled))
    }


def avro_converters(registry: str) -> dict[str, str]:
    """Apicurio's Avro converter, which writes ids as they are in the registry's Confluent-compatible API.

    Args:
        registry: The address of that API.
    """
    settings = {
        "": AVRO,
        ".apicurio.registry.url": registry.replace("/apis/ccompat/v7", "/apis/registry/v2"),
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.use-id": "contentId",
        ".schemas.enable": "true",
    }
    converters = {f"{part}.converter{end}": value for part in ("key", "value") for end, value in settings.items()}
    return {**converters, "schema.name.adjustment.mode": "avro"}
