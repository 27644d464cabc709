"""kdsl's own sinks that store tables keep the contract of all sinks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.formats import TableId
from kdsl.ingest import DeltaTables, JdbcTables, Sink
from kdsl.testing.contracts.sinks import Row, SinkContract
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OwnSinks(SinkContract):
    """With the session of all tests."""

    @pytest.fixture
    def session(self, spark: SparkSession) -> SparkSession:
        return spark


class TestDelta(OwnSinks):
    def sink(self, folder: Path) -> Sink:
        return DeltaTables(str(folder / "lake"))

    def read(self, spark: SparkSession, sink: Sink, table: TableId) -> Sequence[Row]:
        assert isinstance(sink, DeltaTables)
        return [row.asDict() for row in spark.read.format("delta").load("/".join([str(sink.path), *table])).collect()]


@pytest.mark.postgres
class TestJdbc(OwnSinks):
    @pytest.fixture(autouse=True)
    def server(self, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KDSL_TEST_POSTGRES", PASSWORD)
        self._server = postgres

    def _database(self, folder: Path) -> str:
        return f"contract_{sha256(str(folder).encode()).hexdigest()[:16]}"

    def sink(self, folder: Path) -> Sink:
        name = self._database(folder)
        if not self._server.execute(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            self._server.execute(f"CREATE DATABASE {name}")
        url = self._server.url.removesuffix("postgres") + name
        return JdbcTables(url, username="kdsl", password="${env:KDSL_TEST_POSTGRES}")

    def read(self, spark: SparkSession, sink: Sink, table: TableId) -> Sequence[Row]:
        assert isinstance(sink, JdbcTables)
        name = ".".join(f'"{part}"' for part in table)
        rows = self._server.execute(f"SELECT row_to_json(t) FROM {name} AS t", str(sink.url).rpartition("/")[2])
        return [json.loads(line) for line in rows.splitlines()]
