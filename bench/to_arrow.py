"""Measure reads without Spark: ``python -m bench.to_arrow [--records N] [--pairs N]``.

Records of JSON, about 190 bytes each, are read by one process to an Arrow table: by ``to_arrow``, by a consumer of
confluent-kafka whose values ``orjson`` parses to dicts, by one whose values ``pyarrow.json`` reads with the same
schema, and by kafkarrow (``pip install kafkarrow``; left out where it is not installed) with ``pyarrow.json``. All have
the same settings of the client. Then another process reads the topic with ``iter_batches`` and forgets each batch; its
largest resident memory is printed after a tenth of the records and at the end.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Message, TopicPartition
from pyarrow import json as pa_json

from bench.paired import compare
from bench.tables import Orders
from kdsl import Cluster
from kdsl.run.librdkafka.consumers import SIZES
from kdsl.testing import LocalKafka
from kdsl.types.arrow import arrow_schema

TOPIC = "orders"
PARTITIONS = 4
CHUNK = 20_000


def consume(bootstrap: str, records: int) -> Iterator[list[Message]]:
    """Consume all records of the topic with confluent-kafka, in lists."""
    consumer = Consumer({**SIZES[-1].settings, "bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    left = records
    while left > 0:
        messages = [m for m in consumer.consume(CHUNK, 1.0) if m.error() is None]
        left -= len(messages)
        yield messages
    consumer.close()


def with_orjson(bootstrap: str, records: int) -> int:
    """Parse each value to a dict, and return how many there are; no Arrow table is made of them."""
    return sum(len([orjson.loads(m.value() or b"") for m in messages]) for messages in consume(bootstrap, records))


def with_pyarrow_json(bootstrap: str, records: int) -> int:
    """Read the values of each list by ``pyarrow.json`` to the columns of the table, and return the rows."""
    options = _parse_options()
    tables = [
        pa_json.read_json(io.BytesIO(b"\n".join(m.value() or b"" for m in messages)), parse_options=options)
        for messages in consume(bootstrap, records)
        if messages
    ]
    return int(pa.concat_tables(tables).num_rows)


def with_kafkarrow(bootstrap: str, records: int) -> int:
    """Read each batch of kafkarrow by ``pyarrow.json`` to the columns of the table, and return the rows."""
    from kafkarrow import ConsumerManager, SourceTopic  # type: ignore[import-untyped,import-not-found,unused-ignore]

    settings = {name: str(value) for name, value in SIZES[-1].settings.items()}
    topics = [SourceTopic.from_earliest(TOPIC)]
    manager = ConsumerManager(config={**settings, "bootstrap.servers": bootstrap}, topics=topics, batch_size=CHUNK)
    options, tables, rows = _parse_options(), [], 0
    while rows < records:
        values = manager.poll(timeout_ms=1000).column("value")
        if len(values):
            lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0]
            tables.append(pa_json.read_json(pa.BufferReader(lines.as_buffer()), parse_options=options))
            rows += len(values)
    return int(pa.concat_tables(tables).num_rows)


def _parse_options() -> pa_json.ParseOptions:
    schema = arrow_schema(Orders.as_table().read_plan().output)
    return pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")


def with_kdsl(bootstrap: str, records: int) -> int:
    """Read the topic by ``to_arrow``."""
    rows = int(Orders.to_arrow(Cluster(bootstrap)).num_rows)
    assert rows == records, rows
    return rows


def measure_memory(bootstrap: str, records: int) -> None:
    """Read the topic by ``iter_batches`` and print the largest resident memory in MiB, as JSON."""
    read, early = 0, 0.0
    for batch in Orders.iter_batches(Cluster(bootstrap)):
        read += batch.num_rows
        if not early and read >= records / 10:
            early = _peak()
    print(json.dumps({"rows": read, "tenth": round(early, 1), "end": round(_peak(), 1)}))


def _peak() -> float:
    """The largest resident memory of this process so far, in MiB; `getrusage` has that of the parent, too."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    """Fill a topic, and print the rates and the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5, help="0 only measures memory")
    args = parser.parse_args()
    from bench.machine import facts, fill

    with LocalKafka() as kafka:
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        fill(kafka.bootstrap_servers, TOPIC, args.records, partitions=PARTITIONS)
        print(json.dumps(facts()), flush=True)
        ours: Callable[[], object] = partial(with_kdsl, kafka.bootstrap_servers, args.records)
        others = {"orjson": with_orjson, "pyarrow.json": with_pyarrow_json}
        if find_spec("kafkarrow"):
            others["kafkarrow"] = with_kafkarrow
        for name, other in others.items() if args.pairs else ():
            theirs = partial(other, kafka.bootstrap_servers, args.records)
            pair = compare(f"to_arrow beside {name}", ours, theirs, records=args.records, pairs=args.pairs)
            print(pair.describe().replace("with,", "kdsl,").replace("without;", f"{name};"), flush=True)
        command = [sys.executable, "-m", "bench.to_arrow", "--memory", kafka.bootstrap_servers, str(args.records)]
        print("iter_batches, MiB:", subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        measure_memory(sys.argv[2], int(sys.argv[3]))
    else:
        main()
