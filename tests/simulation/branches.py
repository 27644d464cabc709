"""Which branches of the protocols the seeds take: coverage.py's measurement over a list of modules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
from coverage import Coverage, CoverageData

ROOT = Path(__file__).parents[2]

PROTOCOL_MODULES: Sequence[str] = (
    # Planning of offsets, and reading what was planned
    "kdsl.run.offsets.ends",
    "kdsl.run.offsets.initializer",
    "kdsl.run.offsets.starting",
    "kdsl.run.offsets.stopping",
    "kdsl.run.offsets.stored",
    "kdsl.run.offsets.subscription",
    "kdsl.run.librdkafka.fetch",
    "kdsl.run.librdkafka.limits",
    "kdsl.run.librdkafka.range_progress",
    "kdsl.run.librdkafka.range_reader",
    "kdsl.run.librdkafka.source",
    "kdsl.run.librdkafka.stream",
    "kdsl.run.librdkafka.task_packing",
    "kdsl.run.librdkafka.topic_check",
    "kdsl.run.librdkafka.truncation",
    # Group commits, and the end of bounded streams
    "kdsl.run.listeners.commits",
    "kdsl.run.listeners.ending",
    "kdsl.run.listeners.reads",
    # Counts of dead letters
    "kdsl.run.dead_letter_counts",
    "kdsl.run.dead_letters.report",
    # Exactly-once: tokens and transactions, direct, staged and once by id
    "kdsl.run.exactly_once.acquire",
    "kdsl.run.exactly_once.batch",
    "kdsl.run.exactly_once.guards",
    "kdsl.run.exactly_once.row_routing",
    "kdsl.run.exactly_once.running",
    "kdsl.run.exactly_once.staged",
    "kdsl.run.exactly_once.stream",
    "kdsl.run.exactly_once.write_log",
    "kdsl.run.librdkafka.transactions.completeness",
    "kdsl.run.librdkafka.transactions.errors",
    "kdsl.run.librdkafka.transactions.producer",
    "kdsl.run.librdkafka.transactions.spec",
    "kdsl.run.librdkafka.transactions.task",
    "kdsl.run.librdkafka.transactions.token",
    "kdsl.run.librdkafka.transactions.token_store",
    # Leases
    "kdsl.run.leases.group",
    "kdsl.run.leases.lease",
    # Documents of a checkpoint
    "kdsl.run.checkpoint.checkpoint",
    "kdsl.run.checkpoint.driver",
    "kdsl.run.checkpoint.manifest",
    "kdsl.run.checkpoint.offset_entry",
    "kdsl.run.checkpoint.start",
    "kdsl.run.checkpoint.stored_columns",
    "kdsl.run.checkpoint.stored_routing",
    "kdsl.run.checkpoint.task_entries",
    # Versions of the states of upserts
    "kdsl.run.librdkafka.state_checks",
    "kdsl.run.librdkafka.state_plans",
    "kdsl.run.state_files.files",
    "kdsl.run.state_files.local",
    "kdsl.run.state_files.remote",
    "kdsl.run.upsert.keyed_state",
    "kdsl.run.upsert.partition_changes",
    "kdsl.run.upsert.shard_changes",
    "kdsl.run.upsert.shared_hashes",
    "kdsl.run.upsert.state",
    "kdsl.run.upsert.state_changes",
    "kdsl.run.upsert.steps",
    # Ingestions: note, schema change, rows, state
    "kdsl.ingest.decision",
    "kdsl.ingest.learn",
    "kdsl.ingest.run.batch",
    "kdsl.ingest.run.kafka_batch",
    "kdsl.ingest.run.query",
    "kdsl.ingest.run.sinks.delta",
    "kdsl.ingest.run.sinks.jdbc",
    "kdsl.ingest.run.sinks.kafka",
    "kdsl.ingest.run.sinks.writer",
    "kdsl.ingest.state",
    # Targets: what they have applied already
    "kdsl.changelog.changes",
    "kdsl.changelog.content",
    "kdsl.changelog.delta_history",
    "kdsl.changelog.jdbc_staging",
    "kdsl.changelog.same_table",
    "kdsl.changelog.target",
    "kdsl.changelog.to_delta",
    "kdsl.changelog.to_jdbc",
)
"""The modules of the protocols: they decide, over several steps of which each may fail, what was done and what is next.

Not among them, because they decide nothing that a crash can break, and other tests compare them with the real thing:

- what does the I/O of an interface whose model takes its place: clients of brokers (``run.admin``, ``run.ffi``,
  ``librdkafka.consumers``, ``consumer_client``, ``message_batch``, ``producer``), file systems (``checkpoint.folder``,
  ``checkpoint.store_folder``, ``state_files.stores``, ``spark_internals``), Spark's listener, and a database's
  connection and SQL (``changelog.connection``, ``dialects``, ``postgres``, ``delta_session``);
- pure functions from rows to rows or from plans to plans: decoding and encoding, ``upsert.changes`` and ``chunks``,
  partitioners, ``ingest.evolution`` and ``projection``, what Spark's analyzed plan says
  (``exactly_once.determinism``, ``column_digest``);
- the transport ``jvm``, whose protocol is Spark's own, and Iceberg tables and tables in memory as targets, of which
  there is no model: their tests are real ones.
"""


@attrs.frozen
class ModuleBranches:
    """The branches of a module.

    Attributes:
        taken: How many were taken.
        known: How many there are.
        missing: Those that were not taken: lines from and to, as coverage.py writes them.
    """

    taken: int
    known: int
    missing: Sequence[str]


class BranchMeter:
    """Measures which branches are taken, in this process and in others. It must start before kdsl is loaded."""

    def __init__(self) -> None:
        self._coverage = Coverage(
            data_file=None,
            config_file=False,
            branch=True,
            concurrency="greenlet",
            include=[str(_find_file(name)) for name in PROTOCOL_MODULES],
        )
        self._coverage.start()

    def dump(self) -> bytes:
        """What was measured in this process, for `load` in another one."""
        self._coverage.stop()
        data = self._coverage.get_data().dumps()
        self._coverage.start()
        return data

    def load(self, data: bytes) -> None:
        """Add what another process has measured."""
        other = CoverageData(no_disk=True)
        other.loads(data)
        self._coverage.get_data().update(other)

    def report(self) -> dict[str, ModuleBranches]:
        """Stop, and return the branches by module."""
        self._coverage.stop()
        files_of_modules = {name: _find_file(name) for name in PROTOCOL_MODULES}
        with TemporaryDirectory() as folder:
            document = Path(folder, "coverage.json")
            self._coverage.get_data().touch_files(
                map(str, files_of_modules.values())
            )  # also those that were never loaded
            self._coverage.json_report(outfile=str(document))
            files = json.loads(document.read_text())["files"]
        reports = {Path(name).resolve(): document for name, document in files.items()}
        return {name: _read_report(reports[path]) for name, path in files_of_modules.items()}


def format_branches(modules: dict[str, ModuleBranches]) -> list[str]:
    """Lines with the percentage of each module, of all, and the branches that are missing."""
    lines = [
        f"{_percent(one.taken, one.known):>7} {one.taken:4}/{one.known:<4} {name}  {' '.join(one.missing)}".rstrip()
        for name, one in modules.items()
    ]
    taken, known = (sum(getattr(one, name) for one in modules.values()) for name in ("taken", "known"))
    return [*lines, f"{_percent(taken, known):>7} {taken:4}/{known:<4} of the branches of the protocols"]


def _percent(taken: int, known: int) -> str:
    return f"{100 * taken / known:.1f} %" if known else "-"


def _find_file(module: str) -> Path:
    return (ROOT / Path(*module.split("."))).with_suffix(".py")


def _read_report(document: dict[str, object]) -> ModuleBranches:
    summary, missing = document["summary"], document["missing_branches"]
    assert isinstance(summary, dict)
    assert isinstance(missing, list)
    arrows = [f"{start}->{'exit' if end < 0 else end}" for start, end in missing]
    return ModuleBranches(summary["covered_branches"], summary["num_branches"], arrows)
