"""The page beside a real query on a real Kafka: its values are the metrics, also after a restart and a failure."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from kdsl.cluster import Cluster
from kdsl.monitoring.watch.endpoint import parse_endpoint
from kdsl.monitoring.watch.server import PageServer
from kdsl.monitoring.watch.watcher import Watcher
from kdsl.run.metrics.observer import metrics
from kdsl.run.metrics.prometheus import serve_metrics
from kdsl.run.read import read_stream
from kdsl.run.write import write_stream
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.browser import Page, needs_chromium
from tests.run.read_plans import part, read_plan
from tests.run.write_plans import write_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = 'copy "orders" <b>'
# Queries of other tests, which have ended in this process, are on the page, too.
CARD = f"[...document.querySelectorAll('article')].find(a => a.querySelector('h2').textContent === {json.dumps(NAME)})"
TOTAL = "[..." + CARD + ".querySelectorAll('td')].find(e => e.textContent === '{}')?.nextSibling.textContent"
VALUES = f"Object.fromEntries([...{CARD}.querySelectorAll('figure .value')].map(e => "
VALUES += "[e.previousSibling.title.split(':')[0], Number(e.dataset.value)]))"


@needs_chromium
def test_the_page_shows_the_metrics_of_a_query_that_is_started_again_and_fails(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, page: Page
) -> None:
    source, target = kdsl_topic(partitions=2), kdsl_topic()
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    def start() -> StreamingQuery:
        rows = read_stream(spark, read_plan(source, value=part("json", {"id": "BIGINT NOT NULL"})), cluster)
        rows = rows.dropDuplicates(["id"])
        plan = write_plan({"id": "BIGINT NOT NULL"}, topics=(target,))
        return write_stream(rows, plan, cluster, checkpoint=str(tmp_path), name=NAME)

    kdsl_kafka.produce(source, *[f'{{"id": {n % 40}}}' for n in range(100)])
    with serve_metrics(0) as job:
        watcher = Watcher([parse_endpoint(job.url)], 0.3)
        with PageServer(watcher, 0) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            watcher.start()
            query = start()
            page.open(server.url)
            page.wait(f"{TOTAL.format('numRecordsIn')} === '100' && {TOTAL.format('numRecordsOut')} === '40'", 120)
            query.processAllAvailable()
            now = metrics(query)
            page.wait(f"({VALUES}).batchDuration === {now.batch_duration}")
            shown = page.evaluate(VALUES)
            assert shown["pendingRecords"] == now.source.pending_records == 0
            assert shown["batchDuration"] == now.batch_duration
            assert shown["numRowsInState"] == sum(now.num_rows_in_state.values()) == 40
            assert shown["stateMemory"] == sum(now.state_memory.values()) > 0
            assert page.evaluate(TOTAL.format("numRecordsIn")) == str(now.source.num_records_in)
            details = f"{CARD}.querySelector('details')"
            page.evaluate(f"{details}.open = true")
            assert f"{source} 0 " in " ".join(page.evaluate(f"{details}.innerText").split())

            query.stop()
            page.wait(f"{CARD}.querySelector('.state').textContent === 'ended'")
            kdsl_kafka.produce(source, *[f'{{"id": {n}}}' for n in range(100, 107)])
            query = start()
            page.wait(f"{TOTAL.format('numRecordsIn')} === '7' && {CARD}.querySelector('.state.running')", 120)
            assert "restarted once while it was watched" in page.text()
            assert page.evaluate(VALUES)["numRowsInState"] == 47

            kdsl_kafka.produce(source, "not JSON")
            with pytest.raises(StreamingQueryException):
                query.awaitTermination(120)
            page.wait(f"{CARD}.querySelector('.state').textContent === 'failed'")
            error = page.evaluate(f"{CARD}.querySelector('.troubles li').textContent")
            assert error.startswith("the query has failed: ")
            assert source in error
            assert "Traceback" not in page.evaluate(f"{CARD}.innerText")

            job.close()
            silent = "/no answer since .*Connection refused/"
            page.wait(f"{silent}.test(document.querySelector('#endpoints li')?.textContent)")
            watcher.close()
            server.shutdown()
    assert page.complaints == []
