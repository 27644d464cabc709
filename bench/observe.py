"""Measure observing alone, on one core: ``python -m bench.observe [--records N]``.

Prints records per second of processor time for records whose columns are known already, beside ``pyarrow.json`` and
its inference on the same bytes as lines. The goal for JSON of 190 bytes is 2.5 million records per second.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from functools import partial
from random import Random

import pyarrow as pa
import pyarrow.json as pj

from bench import machine
from bench.cases import binary
from bench.formats_json import order
from kdsl.formats import Format, TableId
from kdsl.types.widening import TableSchema
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json

BATCH = 100_000
ROUNDS = 5


def plain(i: int, r: Random) -> str:
    """A record of about 180 bytes."""
    return order(i, r)


def longer(i: int, r: Random) -> str:
    """A record of about 210 bytes, which `bench.row_rules` and others read."""
    return machine.order(i, r).decode()


def debezium(i: int, r: Random) -> str:
    """An insert as Debezium writes it."""
    source = '"source":{"version":"3.4","connector":"mysql","ts_ms":1714566600000,"db":"shop","table":"orders"}'
    return f'{{"before":null,"after":{order(i, r)},{source},"op":"c","ts_ms":1714566600123}}'


def canal(i: int, r: Random) -> str:
    """An insert as Canal writes it."""
    row = f'{{"id":"{i}","user_id":"{r.randrange(10**6)}","amount":"{r.random() * 1000:.2f}","note":"please ring"}}'
    types = '"sqlType":{"id":-5,"user_id":4,"amount":3,"note":12}'
    names = '"database":"shop","table":"orders","pkNames":["id"],"isDdl":false'
    return f'{{"data":[{row}],"old":null,"type":"INSERT","es":1714566600000,"ts":1714566600123,{names},{types}}}'


def seconds(work: Callable[[], object]) -> float:
    """The best processor time of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def rate(format_: Format, messages: pa.BinaryArray) -> float:
    """Records per second in the steady state."""
    observer = format_.observer()
    assert observer is not None
    known: dict[TableId, TableSchema] = {d.table: d.schema for d in observer.observe(messages, {}).deltas}
    steady = observer.observe(messages, known)
    assert not (*steady.deltas, *steady.bad)
    return len(messages) / seconds(lambda: observer.observe(messages, known))


def infer_lines(lines: bytes) -> pa.Table:
    """What ``pyarrow.json`` makes of messages that are lines."""
    options = pj.ReadOptions(use_threads=False, block_size=1 << 24)
    return pj.read_json(io.BytesIO(lines), read_options=options)


def main() -> None:
    """Print a line for each kind of record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=BATCH, help="records of each kind")
    count = parser.parse_args().records
    pa.set_cpu_count(1)
    cases = [
        ("json", Json(), plain),
        ("json, longer records", Json(), longer),
        ("json, table ids of two members", Json(table_id_fields="currency,status"), plain),
        ("debezium-json", DebeziumJson(), debezium),
        ("canal-json, SQL_TYPE", CanalJson(infer_strategy="SQL_TYPE"), canal),
    ]
    for name, format_, write in cases:
        random = Random(7)
        texts = [write(i, random) for i in range(count)]
        size = sum(map(len, texts)) / count
        print(f"{name:45} {size:6.0f} bytes {rate(format_, binary(texts)) / 1e6:8.2f} M records/s")
        if format_.identifier == "json":
            cost = seconds(partial(infer_lines, "\n".join(texts).encode()))
            print(f"{'  pyarrow.json, with its inference':45} {'':12} {count / cost / 1e6:8.2f} M records/s")


if __name__ == "__main__":
    main()
