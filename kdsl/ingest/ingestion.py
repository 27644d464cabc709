"""`Ingestion`: a declared ingestion, with what can be done with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from kdsl.documents import read_text
from kdsl.errors import KdslError, Problem, fail_on, file_position
from kdsl.ingest.definition import IngestionDef
from kdsl.ingest.document import read_document, write_document
from kdsl.ingest.plan import IngestPlan, plan_ingestion
from kdsl.ingest.resolve import find_problems
from kdsl.ingest.show import show_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.ingest.restart import AllowedChange
    from kdsl.ingest.run.sinks import SinkWriter
    from kdsl.table import Table


@attrs.frozen
class Ingestion(IngestionDef):
    r"""An ingestion of many tables: from a source, through transforms and routes, into a sink.

    ```python
    from kdsl import Cluster, DebeziumJson
    from kdsl.ingest import DeltaTables, Ingestion, KafkaFeed, Pipeline, Route, Transform

    shop = Ingestion(
        KafkaFeed(Cluster("localhost:9092"), topic_pattern=r"shop\..*", value=DebeziumJson(schema_include=True)),
        DeltaTables("/lake"),
        transform=[Transform("shop.orders", projection="*, UPPER(country) AS country_code", primary_keys=("id",))],
        route=[Route(r"shop.items_\d+", "lake.items")],
        pipeline=Pipeline(schema_change="LENIENT"),
    )
    print(shop.explain())
    query = shop.run(spark, checkpoint="/checkpoints/shop")
    ```

    Args:
        source: Where the tables come from.
        sink: Where they go.
        transform: What is done with their rows; of several transforms that fit a table the first counts.
        route: The names of the sink tables.
        pipeline: The settings of the whole ingestion.

    Nothing is checked by the constructor; `problems` reports all mistakes at once.
    """

    @classmethod
    def read(
        cls, text: str, variables: Mapping[str, str] | None = None, *, file: str | None = None
    ) -> tuple[Self | None, tuple[Problem, ...]]:
        """Read a YAML document, and find all its mistakes.

        Args:
            text: The document.
            variables: The values of ``${name}`` in it.
            file: The name of its file, for messages.

        Returns:
            The ingestion, or None if the document cannot be read; and all problems, in the order of their lines. An
            ingestion that could be read is returned although `problems` reports errors.
        """
        definition, problems = read_document(text, variables or {}, file=file)
        if definition is not None:
            problems = list(dict.fromkeys([*problems, *find_problems(definition)]))
        values = {} if definition is None else {a.name: getattr(definition, a.name) for a in attrs.fields(IngestionDef)}
        return cls(**values) if values else None, tuple(sorted(problems, key=file_position))

    @classmethod
    def from_yaml(cls, path: str | PathLike[str], variables: Mapping[str, str] | None = None) -> Self:
        """Read a YAML file. An ingestion that could be read is returned although `problems` reports errors.

        Args:
            path: The file.
            variables: The values of ``${name}`` in the file. References to secrets (``${env:NAME}``,
                ``${secret_values.NAME}``) stay references.

        Raises:
            ResolveError: The file is not UTF-8 or not YAML, has no source or no sink, unknown keys, values of a wrong
                type, or unknown variables. All mistakes are reported, each with its path and line, also those that
                `problems` reports.
            OSError: The file cannot be read.
        """
        ingestion, problems = cls.read(read_text(Path(path), "document", "yaml"), variables, file=str(path))
        if ingestion is None:
            fail_on(problems, str(path))
        assert ingestion is not None  # otherwise there is an error
        return ingestion

    def to_yaml(self) -> str:
        """Write the ingestion as YAML, without defaults. Reading it gives an equal ingestion.

        Raises:
            SecretError: A secret is written out; only references to secrets can be written.
        """
        return write_document(self)

    def problems(self) -> tuple[Problem, ...]:
        """All mistakes that show without a broker, a sink and Spark; warnings, too."""
        return tuple(find_problems(self))

    def plan(self) -> IngestPlan:
        """The plan: a frozen value without secrets.

        Raises:
            ResolveError: The ingestion has mistakes; all of them are reported.
        """
        return plan_ingestion(self)

    def run(
        self,
        spark: SparkSession,
        checkpoint: str | None = None,
        *,
        once: bool = False,
        writer: SinkWriter | None = None,
        allow: Collection[AllowedChange] = (),
        forgive_errors: bool = False,
        rebuild_schemas: bool = False,
    ) -> StreamingQuery:
        """Start the streaming query that reads the source and writes the sink.

        At the first start, the newest records of a source in Kafka are read before, and what they show of tables is
        kept with the checkpoint. The session gets kdsl's data source. Spark's errors are passed on.

        Args:
            spark: A classic session.
            checkpoint: The folder of the checkpoint; by default that of the pipeline.
            once: Whether the query ends at what there is at its start.
            writer: Writes to the sink, instead of kdsl's own writer for it. A `kdsl.ingest.run.sinks.MemoryWriter` has
                the tables of the sink ``Memory``.
            allow: What may differ from the run before although sink tables lose something: ``route``, ``transform``, or
                ``sink``: the place of the sink, and sink tables that are gone or were created again.
            forgive_errors: Whether records that could not be read so far no longer count towards the limit
                (``ingestion.error-tolerance.max-count``).
            rebuild_schemas: Whether what was learned of tables is set aside, because it is damaged, and learned again:
                from the newest messages (``scan.max.pre.fetch.records``), the next ones, and the columns that sink
                tables have. Counts and the history begin again.

        Raises:
            ResolveError: The ingestion has mistakes; all of them are reported. Or a reference to a secret cannot be
                resolved.
            CheckpointError: The checkpoint does not belong to the ingestion, or cannot be read or written.
            KdslError: There is no checkpoint, the session is one of Spark Connect, the source is copied once (use
                `copy`), kdsl cannot run the ingestion, the newest records are refused, a topic does not exist, or the
                cluster or the sink cannot be reached.
        """
        from kdsl.ingest.run.query import SharedIngestion, start_ingestions

        return start_ingestions(
            spark, [SharedIngestion(self, writer=writer)], checkpoint, once=once, allow=allow,
            forgive_errors=forgive_errors, rebuild_schemas=rebuild_schemas,
        )  # fmt: skip

    def copy(self, spark: SparkSession, checkpoint: str | None = None, *, writer: SinkWriter | None = None) -> bool:
        """Copy the tables of a source that is copied once into the sink; a copy that is done is not repeated.

        Such sources are databases, and Delta tables without the change feed. If a copy was interrupted, tables that
        have their rows are skipped. This driver takes the checkpoint over from an earlier one.

        Args:
            spark: A classic session.
            checkpoint: The folder of the checkpoint; by default that of the pipeline.
            writer: Writes to the sink, instead of kdsl's own writer for it.

        Returns:
            Whether the copy ran; False if it was done before.

        Raises:
            ResolveError: The ingestion has mistakes; all of them are reported.
            CheckpointError: Another driver has taken the checkpoint over meanwhile, or it cannot be read or written.
            IngestError: A table is refused; nothing was written.
            KdslError: There is no checkpoint, the session is one of Spark Connect, the source is a stream of changes
                (use `run`), kdsl cannot run the ingestion, no table is selected, a reference to a secret cannot be
                resolved, or the source or the sink cannot be reached.
            Exception: That of Spark, if a job fails.
        """
        from kdsl.ingest.run.snapshot import copy_snapshot

        return copy_snapshot(spark, self, checkpoint, writer=writer)

    def load_tables(self, checkpoint: str | None = None, spark: SparkSession | None = None) -> dict[str, Table]:
        """Load the upstream tables that were learned, by their ids, as declared tables.

        They can be read (`Table.read` with the cluster of the source), and `kdsl.codegen.to_python` writes the classes
        of their definitions. Metadata columns are not among their columns.

        Args:
            checkpoint: The folder of the checkpoint; by default that of the pipeline.
            spark: A session that reaches the folder; None for a folder on this machine.

        Raises:
            KdslError: There is no checkpoint, it has nothing of an ingestion, or the source is not Kafka.
            CheckpointError: The checkpoint cannot be read.
        """
        from kdsl.ingest.learned import load_tables

        location = checkpoint or self.pipeline.valid().checkpoint
        if location is None:
            raise KdslError("name the folder of the checkpoint, or set pipeline.checkpoint")
        return load_tables(self, location, spark)

    def explain(self) -> str:
        """The plan as text. Nothing is started or connected.

        Raises:
            ResolveError: As for `plan`.
        """
        return show_plan(self.plan())
