"""A sink of another package: the example is checked, planned and run as the sinks of kdsl."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.errors import KdslError
from kdsl.ingest import Ingestion, Sink
from kdsl.ingest.ends import registry
from kdsl.ingest.run.sinks import open_writer
from kdsl.testing import LocalKafka

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
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the example is installed."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "my_end", raising=False)
    point = EntryPoint("sink.json-files", "my_end:JsonFiles", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: {point.name: point})
    registry.end_class.cache_clear()


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
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"_row_kind": "+I", "id": 1}, {"_row_kind": "+I", "id": 2, "n": "x"},
    ]  # fmt: skip


def test_a_sink_without_a_writer_says_so() -> None:
    class Half(Sink):
        """A sink that can only be planned."""

        type = "half"

    with pytest.raises(KdslError, match=r"the sink 'half' cannot be written: Half has no method writer\(\)"):
        open_writer(Half(), 1)


def test_the_example_is_short() -> None:
    assert len((EXAMPLES / "my_end.py").read_text(encoding="utf-8").splitlines()) <= 120
