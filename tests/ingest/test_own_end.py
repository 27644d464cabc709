"""Ends of another package: the example is checked, planned and run as the ends of kdsl."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.errors import KdslError
from kdsl.ingest import Ingestion, Memory, Sink, Source
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.ingest.run.sources import SourceBatch, SourceTable, open_reader
from kdsl.options import option
from kdsl.testing import LocalKafka
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from tests.installed_plugins import InstallPlugins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic

EXAMPLES = Path(__file__).parents[2] / "examples" / "ingest"
DOCUMENT = """\
source: {{type: kafka, properties.bootstrap.servers: "{servers}", topic: {topic}, value.format: json,
         scan.startup.mode: earliest-offset}}
sink: {{type: json-files, path: {path}}}
"""


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, install_plugins: InstallPlugins) -> None:
    """The package of the example is installed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "my_end", raising=False)
    sinks, sources = {"json-files": "my_end:JsonFiles"}, {"json-files": "my_end:JsonFolder"}
    install_plugins({"kdsl.sinks": sinks, "kdsl.sources": sources})


def read(folder: Path, servers: str = "localhost:1", topic: str = "t") -> Ingestion:
    text = DOCUMENT.format(servers=servers, topic=topic, path=folder / "out")
    ingestion, problems = Ingestion.read(text)
    assert ingestion is not None, problems
    return ingestion


def test_it_is_checked_planned_and_written_as_yaml(tmp_path: Path) -> None:
    ingestion = read(tmp_path)

    assert ingestion.problems() == ()
    assert f"sink json-files\n  path = {tmp_path}/out\n" in ingestion.explain()
    assert Ingestion.read(ingestion.to_yaml())[0] == ingestion
    assert "no option 'pth'" in str(Ingestion.read(ingestion.to_yaml().replace("path", "pth"))[1])


def test_it_is_run(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"id": 1}', '{"id": 2, "n": "x"}')
    ingestion = read(tmp_path, kdsl_kafka.bootstrap_servers, topic)
    ingestion.run(spark, str(tmp_path / "checkpoint"), once=True).awaitTermination()

    files = (tmp_path / "out" / topic / "batch=0").glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert sorted(rows, key=lambda line: line["row"]["id"]) == [
        {"kind": "+I", "row": {"id": 1}}, {"kind": "+I", "row": {"id": 2, "n": "x"}},
    ]  # fmt: skip


SOURCE = """\
source: {{type: json-files, path: {path}, columns: "id ${{type}}, n STRING", table: orders, primary-key: id}}
transform: [{{source-table: orders, projection: '\\*, id + 1 AS next'}}]
sink: {{type: memory}}
"""


def read_source(folder: Path, kind: str = "BIGINT") -> Ingestion:
    ingestion, problems = Ingestion.read(SOURCE.format(path=folder / "in"), {"type": kind})
    assert ingestion is not None, problems
    return ingestion


def test_a_source_is_checked_planned_and_written_as_yaml(tmp_path: Path) -> None:
    ingestion = read_source(tmp_path)

    assert ingestion.problems() == ()
    assert f"source json-files\n  path = {tmp_path}/in\n  table = orders\n" in ingestion.explain()
    assert Ingestion.read(ingestion.to_yaml())[0] == ingestion
    (problem,) = read_source(tmp_path, "BIGINTEGER").problems()
    assert (problem.code, problem.where.path) == ("json-files", "$.source.columns")


def test_a_source_is_run(spark: SparkSession, tmp_path: Path) -> None:
    ingestion, writer = read_source(tmp_path), MemoryWriter()
    for number, lines in enumerate([
        ['{"kind": "+I", "row": {"id": 1, "n": "a"}}', '{"kind": "+I", "row": {"id": 2}}'],
        ['{"kind": "-U", "row": {"id": 1, "n": "a"}}', '{"kind": "+U", "row": {"id": 1, "n": "b"}}',
         '{"kind": "-D", "row": {"id": 2}}'],
    ]):  # fmt: skip
        folder = tmp_path / "in" / f"batch={number}"
        folder.mkdir(parents=True)
        (folder / "part.json").write_text("\n".join(lines), encoding="utf-8")
        ingestion.run(spark, str(tmp_path / "checkpoint"), once=True, writer=writer).awaitTermination()

    assert writer.tables["orders",].rows() == [{"id": 1, "n": "b", "next": 2}]
    with pytest.raises(KdslError, match="the source 'json-files' is not copied once"):
        ingestion.copy(spark, str(tmp_path / "checkpoint"))


def test_a_source_that_is_copied_once(spark: SparkSession, tmp_path: Path) -> None:
    class Numbers(Source):
        """Numbers from 0 on."""

        type = "numbers"
        count: int = option("count", "How many.")

        @property
        def copied_once(self) -> bool:
            return True

        def reader(self) -> NumbersReader:
            return NumbersReader(self.count)

    writer = MemoryWriter()
    ingestion = Ingestion(Numbers(count=2), Memory())
    with pytest.raises(KdslError, match="the source 'numbers' is not a stream"):
        ingestion.run(spark, str(tmp_path))
    assert ingestion.copy(spark, str(tmp_path), writer=writer)
    assert not ingestion.copy(spark, str(tmp_path), writer=writer)

    assert writer.tables["numbers",].rows() == [{"id": 0}, {"id": 1}]


class NumbersReader:
    """Reads numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def read_tables(self, spark: SparkSession, progress: Mapping[str, str]) -> SourceBatch:
        schema = TableSchema((t.Field("id", t.BigInt(nullable=False)),), ("id",))
        return SourceBatch([SourceTable(("numbers",), schema, lambda: spark.range(self._count))])


def test_a_source_without_a_reader_says_so() -> None:
    class Half(Source):
        """A source that can only be planned."""

        type = "half"

    class Wrong(Half):
        """A source whose reader has no methods."""

        def reader(self) -> Any:
            return self

    with pytest.raises(KdslError, match=r"the source 'half' cannot be read: Half has no method reader\(\)"):
        open_reader(Half())
    with pytest.raises(KdslError, match=r"Wrong\.reader\(\) returns no StreamReader, which it must if"):
        open_reader(Wrong())


def test_a_sink_without_a_writer_says_so() -> None:
    class Half(Sink):
        """A sink that can only be planned."""

        type = "half"

    with pytest.raises(KdslError, match=r"the sink 'half' cannot be written: Half has no method writer\(\)"):
        Half().writer(1)


def test_the_example_is_short() -> None:
    assert len((EXAMPLES / "my_end.py").read_text(encoding="utf-8").splitlines()) <= 120
