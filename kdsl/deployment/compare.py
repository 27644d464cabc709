"""`kdsl.diff` and `kdsl.apply`: compares declarations with what is live, and makes the changes that only add."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Literal

import attrs

from kdsl.cluster import Cluster
from kdsl.deployment.desired import BOTH, Declaration, Needs
from kdsl.deployment.model import Difference, Step
from kdsl.deployment.progress import compare_progress
from kdsl.deployment.result import Applied, Diff
from kdsl.deployment.subjects import compare_subjects
from kdsl.deployment.topics import LiveCluster, compare_topics, join_steps
from kdsl.errors import KdslError, listing, nearest
from kdsl.formats import Direction
from kdsl.ingest import Ingestion
from kdsl.kafka_table import KafkaTable
from kdsl.run.checkpoint.folder import Folder, open_folder, open_local_folder
from kdsl.run.session import start_local_session
from kdsl.spark_internals.errors import GatewayError, JavaError
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.deployment.sinks import Target

Item = type[KafkaTable] | Table | Ingestion
Allowed = Literal["partitions"]


def diff(
    tables: Iterable[Item] | Item,
    cluster: Cluster | None = None,
    *,
    direction: Direction | None = None,
    checkpoints: Mapping[str, str] | None = None,
    targets: Mapping[str, Target] | None = None,
    spark: SparkSession | None = None,
) -> Diff:
    """Compare declarations with what is live: topics, rights, groups, schemas, checkpoints and tables of sinks.

    Nothing is changed. A thing that cannot be looked at, such as a cluster that does not answer, is a difference with
    the mark ``?``, and the others are still compared.

    ```python
    import kdsl

    result = kdsl.diff([Orders, Users], Cluster("localhost:9092"))
    print(result)
    for one in result.differences:
        print(one.kind, one.name, one.what, one.live, one.declared, one.consequence)
    ```

    Args:
        tables: Table classes, tables and ingestions (`kdsl.ingest.Ingestion`).
        cluster: The cluster of tables that name none.
        direction: Whether tables are only read or only written; None for both.
        checkpoints: The folders of checkpoints, by the names of tables, or of ingestions' pipelines.
        targets: The Delta or database tables that changelogs of tables are applied to, by the names of the tables:
            `kdsl.changelog.delta` and `kdsl.changelog.jdbc`.
        spark: A session for what needs one: tables of Delta and databases, checkpoints on other machines, and logins
            that only Java's client has. By default the active one, or one that is started.

    Raises:
        ResolveError: Declarations have errors; all of them are reported.
        ValueError: A checkpoint or a target is named for something that is not declared.
    """
    declarations = declare(tables, direction, checkpoints, targets)
    return Diff(tuple(step.difference for step in compare(declarations, cluster, targets, spark)))


def apply(
    tables: Iterable[Item] | Item,
    cluster: Cluster | None = None,
    *,
    allow: Collection[Allowed] = (),
    direction: Direction | None = None,
    checkpoints: Mapping[str, str] | None = None,
    targets: Mapping[str, Target] | None = None,
    spark: SparkSession | None = None,
) -> Applied:
    """Create what is declared and missing, and change what only becomes wider; nothing is deleted or narrowed.

    It makes the changes of `diff` with the marks ``+`` and ``~``, one after the other, and stops when one fails, which
    is not raised but returned. To repeat it is safe: a change that was made is not repeated.

    Args:
        tables: As for `diff`.
        cluster: As for `diff`.
        allow: ``"partitions"``: also raise the partitions of topics whose records are in partitions by their keys.
        direction: As for `diff`.
        checkpoints: As for `diff`.
        targets: As for `diff`.
        spark: As for `diff`.

    Raises:
        ResolveError: As for `diff`.
        ValueError: As for `diff`; or ``allow`` has another name.
    """
    for name in allow:
        if name != "partitions":
            raise ValueError(f"allow= contains {name!r}; 'partitions' is all that can be allowed")
    return make_changes(compare(declare(tables, direction, checkpoints, targets), cluster, targets, spark), allow)


def declare(
    tables: Iterable[Item] | Item,
    direction: Direction | None,
    checkpoints: Mapping[str, str] | None,
    targets: Mapping[str, Target] | None = None,
) -> list[Declaration]:
    """Return the declarations of tables and ingestions, with their checkpoints.

    Raises:
        ValueError: A checkpoint or a target is named for something that is not declared.
    """
    items = [tables] if isinstance(tables, Ingestion | Table | type) else list(tables)
    converted = [Table(item.definition()) if isinstance(item, type) else item for item in items]
    directions = BOTH if direction is None else (direction,)
    declarations = [Declaration(item, directions, title=title_of(item)) for item in converted]
    return with_checkpoints(declarations, checkpoints or {}, targets or {})


def title_of(item: Table | Ingestion) -> str:
    """The name by which a user calls a table or an ingestion: of the latter its name, its file, or ``ingestion``."""
    return item.name if isinstance(item, Table) else item.pipeline.valid().name or item.locations.file or "ingestion"


def with_checkpoints(
    declarations: Iterable[Declaration], checkpoints: Mapping[str, str], targets: Mapping[str, object]
) -> list[Declaration]:
    """Return the declarations with checkpoints that the user names, by title.

    Raises:
        ValueError: A checkpoint or a target is named for something that is not declared.
    """
    titled = [attrs.evolve(one, checkpoint=checkpoints.get(one.title, one.checkpoint)) for one in declarations]
    titles = [one.title for one in titled]
    for name in (*checkpoints, *targets):
        if name not in titles:
            raise ValueError(f"{name!r} is not declared{nearest(name, titles)}; declared are {listing(titles)}")
    return titled


def compare(
    declarations: Iterable[Declaration],
    cluster: Cluster | None = None,
    targets: Mapping[str, Target] | None = None,
    spark: SparkSession | None = None,
) -> list[Step]:
    """Compare declarations with what is live.

    Args:
        declarations: The declarations.
        cluster: The cluster of tables that name none.
        targets: Targets of changelogs, by table.
        spark: As for `diff`.

    Returns:
        The differences, each once, in the order in which changes are made. What cannot be looked at is among them.

    Raises:
        ResolveError: Declarations have errors; all of them are reported.
    """
    declared = list(declarations)
    needs = Needs(declared, cluster)

    @cache
    def open_session() -> SparkSession:
        from pyspark.sql import SparkSession

        return spark or SparkSession.getActiveSession() or start_local_session("kdsl diff")

    def open_checkpoint(location: str) -> Folder:
        remote = "://" in location and not location.startswith("file:")
        return open_folder(open_session(), location) if remote else open_local_folder(location)

    tables = [one for one in declared if isinstance(one.item, Table) and one.title in (targets or {})]
    sinks = [
        *chain.from_iterable(
            _compare_sinks(one, needs, targets or {}, open_checkpoint, open_session)
            for one in (*needs.ingestions, *tables)
        ),
    ]
    topics: list[Step] = []
    progress: list[Step] = []
    for needed in needs.clusters.values():
        try:
            live = LiveCluster(needed)
            topics += compare_topics(live)
            progress += compare_progress(live, open_checkpoint, open_session)
        except KdslError as e:
            place = needed.cluster.label
            where = needed.topics[0].where if needed.topics else None
            difference = Difference("?", "cluster", place, str(e).removeprefix("diff: "), place=place)
            topics.append(Step(difference if where is None else attrs.evolve(difference, where=where)))
    return join_steps([*topics, *compare_subjects(needs.subjects), *sinks, *progress])


def _compare_sinks(
    declaration: Declaration,
    needs: Needs,
    targets: Mapping[str, Target],
    open_checkpoint: Callable[[str], Folder],
    open_session: Callable[[], SparkSession],
) -> Iterator[Step]:
    """Yield how the sinks of a declaration differ.

    An error of kdsl, Java or Spark becomes a thing that cannot be looked at.
    """
    from pyspark.errors import PySparkException

    from kdsl.deployment.sinks import compare_ingestion, compare_target  # imports PySpark, which tables do not need

    try:
        if isinstance(declaration.item, Table):
            yield from compare_target(declaration.item, targets[declaration.title], open_session)
        else:
            yield from compare_ingestion(declaration, needs, open_checkpoint, open_session)
    except (KdslError, GatewayError, JavaError, PySparkException) as e:
        yield Step(Difference("?", "table", declaration.title, _first_line(e)))


def select_changes(steps: Iterable[Step], allow: Collection[str]) -> list[Step]:
    """Return the steps that `make_changes` makes: those with a change that needs no permission, or has it."""
    return [step for step in steps if step.run is not None and (step.needs is None or step.needs in allow)]


def make_changes(
    steps: Iterable[Step], allow: Collection[str] = (), report: Callable[[Difference], None] = lambda _: None
) -> Applied:
    """Make the changes of steps, one after the other, until one fails, whose error is returned and not raised.

    Args:
        steps: The steps.
        allow: What the user allows; changes that need another permission are not made.
        report: Called after each change that was made.
    """
    every = list(steps)
    comparison = Diff(tuple(step.difference for step in every))
    chosen = select_changes(every, allow)
    held = tuple(step.difference for step in every if step.run is not None and step not in chosen)
    done: list[Difference] = []
    for i, step in enumerate(chosen):
        assert step.run is not None
        try:
            step.run()
        except Exception as e:  # noqa: BLE001  # whatever fails, what was done must be said
            left = tuple(s.difference for s in chosen[i + 1 :])
            return Applied(tuple(done), step.difference, _first_line(e), left, held, comparison)
        done.append(step.difference)
        report(step.difference)
    return Applied(tuple(done), not_allowed=held, diff=comparison)


def _first_line(error: Exception) -> str:
    """The first line of an error's message, without the name of the command."""
    return (str(error) or type(error).__name__).splitlines()[0].removeprefix("diff: ")
