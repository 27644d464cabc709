"""``kdsl ingest``: run an ingestion, or show its plan, its progress and the tables that it has learned."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import attrs
import typer

from kdsl import load
from kdsl.cli.clusters import parse_pairs
from kdsl.cli.console import log_lines, out, print_problem, print_status, print_text, progress
from kdsl.cli.grid import Grid
from kdsl.cli.run import session
from kdsl.cli.variables import VariableFiles, Variables, read_variables
from kdsl.errors import KdslError, Problem, pluralize
from kdsl.formats import TableId
from kdsl.ingest import Ingestion, KafkaFeed, Pipeline, Source
from kdsl.ingest.decision import refuse_new_tables
from kdsl.ingest.ids import format_id, parse_id
from kdsl.ingest.learned import load_progress, load_state
from kdsl.ingest.restart import AllowedChange
from kdsl.ingest.schema_changes import Refusal, SchemaChange, UpstreamTable
from kdsl.ingest.show import show_plan
from kdsl.ingest.state import IngestState
from kdsl.ingest.unused import UnusedPatterns
from kdsl.spark_internals.session import wait_for_listeners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PIPELINE = "pipeline."
_WAIT = 0.2
_LAST_EVENTS = 20_000
"""How many milliseconds the end of a run waits for the last lines of its log."""
Form = Literal["ddl", "python", "history"]


def ingest(
    file: Annotated[Path, typer.Argument(help="An ingestion in YAML.")],
    table: Annotated[str | None, typer.Argument(help="With --schemas: only this upstream table.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The checkpoint folder; by default that of the file.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Process the records that exist now, and exit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; start nothing.")] = False,
    sample: Annotated[
        bool, typer.Option("--sample", help="With --dry-run: read the newest records, and plan the tables they show.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Print the progress, the tables and what was counted; without Spark.")
    ] = False,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Print the columns of the tables that were learned; without Spark.")
    ] = False,
    ddl: Annotated[bool, typer.Option("--ddl", help="With --schemas: as CREATE TABLE statements.")] = False,
    python: Annotated[bool, typer.Option("--python", help="With --schemas: as table classes.")] = False,
    history: Annotated[bool, typer.Option("--history", help="With --schemas: every schema change.")] = False,
    allow: Annotated[
        str | None,
        typer.Option(
            help="Continue although another route, transform or sink takes something from sink tables; names of these."
        ),
    ] = None,
    forgive_errors: Annotated[
        bool,
        typer.Option(
            "--forgive-errors", help="Records that could not be read so far no longer count towards the limit."
        ),
    ] = False,
    rebuild_schemas: Annotated[
        bool,
        typer.Option(
            "--rebuild-schemas", help="Learn the tables again, because what the checkpoint says of them is damaged."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("-D", "--set", help="A setting of the pipeline, as pipeline.name=shop.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("-c", "--conf", help="A Spark setting, as spark.driver.memory=4g.")
    ] = None,
    variable: Variables = None,
    variable_files: VariableFiles = None,
) -> None:
    """Run an ingestion until it ends or Ctrl-C stops it, or show what it does and has learned.

    Exits with 0 if it has ended or was stopped, with 1 if it has errors or fails, and with 2 if the file cannot be read
    or options are wrong or do not fit together.
    """
    chosen: dict[Form, bool] = {"ddl": ddl, "python": python, "history": history}
    forms: list[Form] = [form for form, on in chosen.items() if on]
    if sum((dry_run, status, schemas)) > 1 or len(forms) > 1:
        raise typer.BadParameter("use only one of --dry-run, --status and --schemas, and of --ddl, --python, --history")
    if (forms or table) and not schemas:
        raise typer.BadParameter("a table, --ddl, --python and --history need --schemas", param_hint="--schemas")
    if sample and not dry_run:
        raise typer.BadParameter("--sample needs --dry-run", param_hint="--sample")
    ingestion = _read(file, read_variables(variable, variable_files), parse_pairs(settings, "--set"))
    if dry_run:
        _print_plan(ingestion, sample=sample)
        return
    location = checkpoint or ingestion.pipeline.valid().checkpoint
    if location is None:
        raise typer.BadParameter("name a folder, or set pipeline.checkpoint in the file", param_hint="--checkpoint")
    if status:
        _print_status(ingestion, location)
    elif schemas:
        _print_schemas(ingestion, location, table, forms[0] if forms else None)
    else:
        start = partial(
            Ingestion.run, once=once, allow=_parse_allowed(allow), forgive_errors=forgive_errors,
            rebuild_schemas=rebuild_schemas,
        )  # fmt: skip
        _run(ingestion, location, file.stem, parse_pairs(conf, "--conf"), start)


def _read(file: Path, variables: dict[str, str], settings: dict[str, str]) -> Ingestion:
    """Read an ingestion, and print its problems; settings, whose keys begin with ``pipeline.``, override the file's."""
    for key in settings:
        if not key.startswith(_PIPELINE):
            raise typer.BadParameter(
                f"{key!r} is not a setting of the pipeline; write pipeline.KEY=VALUE", param_hint="--set"
            )
    try:
        ingestion, problems = load.ingestion(str(file), variables)
    except load.TargetError as e:
        raise typer.BadParameter(str(e), param_hint="FILE") from None
    if ingestion is not None and settings:
        own = {key.removeprefix(_PIPELINE): value for key, value in settings.items()}
        pipeline = Pipeline.from_strings({**ingestion.pipeline.to_strings(), **own})
        ingestion = attrs.evolve(ingestion, pipeline=pipeline)
        problems = ingestion.problems()
    for problem in problems:
        print_problem(problem)
    if ingestion is None or any(problem.severity == "error" for problem in problems):
        raise typer.Exit(1)
    return ingestion


def _parse_allowed(text: str | None) -> list[AllowedChange]:
    """The parts that ``--allow`` names; BadParameter if there is no such part."""
    names: dict[str, AllowedChange] = {name: name for name in get_args(AllowedChange)}
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if wrong := [part for part in parts if part not in names]:
        raise typer.BadParameter(f"{wrong[0]!r} is not one of {', '.join(names)}", param_hint="--allow")
    return [names[part] for part in parts]


def _print_plan(ingestion: Ingestion, *, sample: bool) -> None:
    """Print the plan; with a sample, also of the tables that the newest records show, for which brokers are asked."""
    plan = ingestion.plan()
    source = ingestion.source
    refusals: tuple[Refusal, ...] = ()
    if sample:
        if not isinstance(source, KafkaFeed):
            raise typer.BadParameter(f"it reads topics, and the source is {source.type!r}", param_hint="--sample")
        from kdsl.ingest.run.prefetch import sample_tables
        from kdsl.ingest.run.progress import explain_missing_topics

        with progress(f"reading {source.topics}"):
            tables = sample_tables(plan, source).tables
            missing = explain_missing_topics(source)
        plan = attrs.evolve(plan, initial_schemas={name: one.schema for name, one in tables.items()})
        unused = UnusedPatterns(list(plan.patterns()))
        unused.add(tables)
        warnings = [*plan.notices, *unused.warn("so far"), *([missing] if missing else [])]
        plan = attrs.evolve(plan, notices=tuple(dict.fromkeys(warnings)))
        refusals = refuse_new_tables(plan, tables)
    print_text(show_plan(plan).rstrip("\n"))
    for refusal in refusals:
        print_problem(Problem(f"ingest-{refusal.code}", refusal.message, refusal.fix))
    if refusals:
        raise typer.Exit(1)


def _run(
    ingestion: Ingestion, checkpoint: str, name: str, conf: dict[str, str], start: Callable[..., StreamingQuery]
) -> None:
    """Start Spark and an ingestion with `start`, and wait until the query ends or SIGINT or SIGTERM stops it.

    A source that is copied once is only copied, without `start`. Spark is stopped at the end; the handlers of the two
    signals stay replaced.
    """
    from kdsl.ingest.run.query import explain_end

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with log_lines() as lines:
        with progress("starting Spark"):
            spark: SparkSession = session(ingestion.pipeline.valid().name or name, conf)
        try:
            if ingestion.source.copied_once:
                copied = ingestion.copy(spark, checkpoint)
                print_status("done" if copied else "the tables were copied already")
                return
            query = start(ingestion, spark, checkpoint)
            with lines.show_progress("waiting for the first batch"):
                while query.isActive and not stopping.wait(_WAIT):
                    pass
            if query.isActive:
                query.stop()
                print_status("stopped")
            elif (error := explain_end(spark, query, checkpoint)) is not None:
                raise KdslError(error)
        finally:
            with suppress(Exception):  # the JVM has ended; the last lines of the log are then lost
                wait_for_listeners(spark, _LAST_EVENTS)
            spark.stop()


def _print_status(ingestion: Ingestion, checkpoint: str) -> None:
    """Print the progress, what was counted, the last schema change, and the tables.

    An error that prevents that the progress is known is printed in its place.
    """
    loaded, plan = load_progress(checkpoint), ingestion.plan()
    state = loaded.state
    lines, exit_code = [f"checkpoint {checkpoint}"], 0
    try:
        lines += _progress_lines(ingestion.source, checkpoint, state)
    except KdslError as e:
        lines.append(f"the progress is not known: {e}")
        exit_code = 1
    if loaded.unfinished is not None:
        what = "the copy" if ingestion.source.copied_once else f"batch {loaded.unfinished}"
        pending = (
            f"; its {pluralize(loaded.pending, 'record is', 'records are')} not counted here" if loaded.pending else ""
        )
        lines.append(f"{what} is not finished{pending}")
    lines += [f"{reason}: {count:,}" for reason, count in sorted(state.counts.items())]
    if state.changes:
        lines.append(f"last schema change: {_change_text(*state.changes[-1])}")
    print_text("\n".join(lines))
    names = ("table", "records", "columns", "primary key", "sink tables")
    grid = Grid(pluralize(len(state.upstream), "table"), names, right=("records", "columns"))
    for table, upstream in sorted(state.upstream.items()):
        schema = upstream.schema
        targets = ", ".join(
            format_id(target) if target in state.sinks else f"{format_id(target)} (no rows yet)"
            for target in plan.targets(table)
        )
        records, columns = f"{state.records.get(table, 0):,}", f"{len(schema.columns):,}"
        grid.add_row(format_id(table), records, columns, ", ".join(schema.primary_key) or "none", targets)
    out.print(grid)
    if exit_code:
        raise typer.Exit(exit_code)


def _progress_lines(source: Source, checkpoint: str, state: IngestState) -> list[str]:
    """How far a source is read, as lines; for Kafka the brokers are asked.

    If a topic does not exist any more, or the checkpoint has no batch that can be read, the error is the line.
    """
    from kdsl.diagnostics.lag import LagError, LagReader, checkpoint_positions

    if not isinstance(source, KafkaFeed):
        end = ", ".join(f"{name} {value}" for name, value in state.progress.items())
        return [f"batch {state.last} is the last one with rows or changes"] + ([f"read up to {end}"] if end else [])
    try:
        batch, positions = checkpoint_positions(checkpoint)
        with progress(f"asking {source.cluster.label}"), LagReader(source.cluster) as reader:
            lag = reader.lag_of(f"checkpoint {checkpoint}, batch {batch}", positions)
    except LagError as e:
        return [str(e)]
    return [f"batch {batch} is done; {pluralize(lag.total, 'record is', 'records are')} not read yet"]


def _change_text(batch: int, change: SchemaChange) -> str:
    """A schema change with the number of its batch."""
    return f"batch {batch}: {change}"


def _print_schemas(ingestion: Ingestion, checkpoint: str, name: str | None, form: Form | None) -> None:
    """Print the tables that were learned, or how they changed."""
    state = load_state(checkpoint)
    only = None if name is None else _find_table(name, state)
    if form == "history":
        plan = ingestion.plan()
        wanted = None if only is None else {only, *(plan.targets(only) if only in state.upstream else ())}
        changes = [one for one in state.changes if wanted is None or one[1].table in wanted]
        text = "\n".join(_change_text(*one) for one in changes)
    else:
        tables = {table: one for table, one in state.upstream.items() if only in (None, table)}
        text = _tables_text(ingestion, tables, form)
    print_text(text.rstrip("\n"))


def _find_table(name: str, state: IngestState) -> TableId:
    """Find a table by its id, or by its names with dots between them and without quotes, where only one has these."""
    tables = {*state.upstream, *state.sinks}
    with suppress(ValueError):
        if (table := parse_id(name)) in tables:
            return table
    fitting = [table for table in tables if ".".join(table) == name]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(map(format_id, sorted(state.upstream)))
    raise typer.BadParameter(f"there is no table {name!r}; there are: {known}", param_hint="TABLE")


def _tables_text(ingestion: Ingestion, tables: dict[TableId, UpstreamTable], form: Form | None) -> str:
    """The columns of tables: as plain lines without a form, as classes for ``python``, else as statements."""
    if form is None:
        return "\n".join(line for table, one in tables.items() for line in _column_lines(table, one))
    from kdsl.codegen.ddl_text import write_ddl
    from kdsl.codegen.source import to_python
    from kdsl.ingest.records import define_table

    if not isinstance(ingestion.source, KafkaFeed):
        raise KdslError(f"--{form} describes tables of Kafka topics, and the source is {ingestion.source.type!r}")
    definitions = [define_table(ingestion.source, table, one) for table, one in tables.items()]
    return to_python(definitions) if form == "python" else write_ddl(definitions)[0]


def _column_lines(table: TableId, upstream: UpstreamTable) -> list[str]:
    """The lines of a table: its name, its columns, its primary key."""
    lines = [format_id(table), *(f"  {column}" for column in upstream.schema.columns)]
    key = upstream.schema.primary_key
    return [*lines, *([f"  primary key {', '.join(key)}"] if key else [])]
