"""The one listener of a session: turns Spark's events into values, and hands them to the observers of this process.

A listener costs time in every batch, and so on a classic session the event crosses to Python once, as JSON, instead of
field by field. What an observer raises is logged; it hurts neither the query nor other observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import attrs
import orjson
from pyspark.sql.streaming.listener import StreamingQueryListener

from kdsl.run.cluster.offsets import Offsets, offset_document, positions_of
from kdsl.run.frames.analyzed import items, kind_of
from kdsl.run.queries.events import Observer, Progress, Query, ReadProgress, report_of
from kdsl.run.queries.reads import READ_OPTION, Read, find, find_by_topics, stop_of
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("kdsl.queries")

_observers: list[Observer] = []
_listeners: dict[str, Listener] = {}
_lock = Lock()


def observe(observer: Observer) -> None:
    """Add an observer for this process; it is told of all queries of the sessions that read streams, from now on."""
    with _lock:
        if observer not in _observers:
            _observers.append(observer)


def unobserve(observer: Observer) -> None:
    """Take an observer away."""
    with _lock:
        if observer in _observers:
            _observers.remove(observer)


def listen(spark: SparkSession) -> None:
    """Register the listener of a session, unless it has one.

    Args:
        spark: The session, classic or Connect.
    """
    key = _session_key(spark)
    with _lock:
        if key in _listeners:
            return
        listener = _listeners[key] = Listener(spark)
    # Connect's client starts a thread for events; it is a daemon, so that no process hangs on it, if its maker is one.
    failed: list[Exception] = []

    def add() -> None:
        try:
            spark.streams.addListener(listener)
        except Exception as e:  # noqa: BLE001  # it belongs to the thread that asked
            failed.append(e)

    adding = Thread(target=add, name="kdsl-listener", daemon=True)
    adding.start()
    adding.join()
    if failed:
        with _lock:
            _listeners.pop(key, None)
        raise failed[0]


def sessions() -> tuple[SparkSession, ...]:
    """The sessions that have a listener."""
    return tuple(listener.session for listener in _listeners.values())


def _session_key(spark: SparkSession) -> str:
    session: Any = spark
    return str(session.session_id if is_connect(spark) else session._jsparkSession.sessionUUID())  # noqa: SLF001


class _ClassicEvents:
    """The Java interface of a listener, implemented in Python; each event comes over as one text."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """A query begins."""
        self._listener.take("started", orjson.loads(event.json()))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch has ended."""
        progress = event.progress()
        self._listener.take("progressed", orjson.loads(progress.json()), progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """A query waits."""
        self._listener.take("idle", orjson.loads(event.json()))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query has ended."""
        self._listener.take("ended", orjson.loads(event.json()))

    class Java:
        """What py4j asks for."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class Listener(StreamingQueryListener):
    """The listener of a session.

    Args:
        spark: The session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark
        self._known: dict[tuple[str, int], Read] = {}
        self._names: dict[str, str | None] = {}
        self._running: dict[str, Any] = {}  # Java's queries, which Spark forgets before the last report of them comes
        self._wrapped: Any = None

    @property
    def _jlistener(self) -> Any:
        if self._wrapped is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm  # noqa: SLF001
            self._wrapped = jvm.PythonStreamingQueryListenerWrapper(_ClassicEvents(self))
        return self._wrapped

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """A query begins (Connect)."""
        self.take("started", {"id": str(event.id), "runId": str(event.runId), "name": event.name})

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch has ended (Connect)."""
        self.take("progressed", report_of(event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """A query waits (Connect)."""
        self.take("idle", {"id": str(event.id), "runId": str(event.runId)})

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query has ended (Connect)."""
        self.take("ended", {"id": str(event.id), "runId": str(event.runId), "exception": event.exception})

    def take(self, what: str, document: Mapping[str, Any], java: Any = None) -> None:
        """Hand an event to all observers.

        Args:
            what: Which method of an observer it goes to.
            document: The event; of a progress, the progress.
            java: Java's own object of the progress, on a classic session.
        """
        try:
            run = document["runId"]
            if "name" in document:
                self._names[run] = document["name"]
            query = Query(document["id"], run, self._names.get(run), document.get("exception"), self.session)
            if what == "progressed":
                sources = document.get("sources") or ()
                progress = Progress(query, document["batchId"], len(sources), document, java)
                reads = tuple(self.reads(query, sources))
                self._tell(lambda observer: observer.progressed(progress, reads))
            else:
                self._tell(lambda observer: getattr(observer, what)(query))
            if what == "started":
                self._running[run] = _running(self.session, query)
            if what == "ended":
                self._names.pop(run, None)
                self._running.pop(run, None)
                for key in [key for key in self._known if key[0] == run]:
                    del self._known[key]
        except Exception:
            log.exception("an event of a streaming query could not be read")

    def _tell(self, call: Callable[[Observer], None]) -> None:
        for observer in tuple(_observers):
            try:
                call(observer)
            except Exception:
                log.exception("%s could not deal with an event of a streaming query", type(observer).__name__)

    def reads(self, query: Query, sources: Any) -> Iterator[ReadProgress]:
        """Those of a query's sources that are reads of kdsl.

        Args:
            query: The query.
            sources: The sources as Spark reports them.
        """
        for at, source in enumerate(sources):
            end = offset_document(source.get("endOffset"))
            if end is None:
                continue
            named = "read" in end
            parse = Offsets.from_json if named else _spark_offsets
            positions = parse(end)
            read = find(end["read"]) if named else self._unnamed(query, at, len(sources), source, positions)
            if read is None or positions is None:
                continue
            if not named:
                positions = attrs.evolve(positions, read=read.id, stop=stop_of(read))
            start, latest = (offset_document(source.get(name)) for name in ("startOffset", "latestOffset"))
            yield ReadProgress(
                read,
                None if start is None else parse(start),
                positions,
                None if latest is None else parse(latest),
                source.get("numInputRows") or 0,
                at,
            )

    def _unnamed(self, query: Query, at: int, count: int, source: Any, offsets: Offsets | None) -> Read | None:
        """The read of a source that is Spark's own."""
        if offsets is None or not str(source.get("description", "")).startswith("KafkaV2"):
            return None
        known = self._known.get((query.run_id, at))
        if known is not None:
            return known
        found: Read | None = None
        candidates = find_by_topics(topic for topic, _ in offsets.positions)
        if len(candidates) == 1:
            found = candidates[0]
        elif candidates and not is_connect(self.session):
            running = self._running.get(query.run_id) or _running(self.session, query)
            ids = [option for _, _, option in _sources(running)]
            found = find(ids[at]) if len(ids) == count else None
        if found is not None:
            self._known[query.run_id, at] = found
        return found


def _spark_offsets(document: Mapping[str, Any]) -> Offsets | None:
    """The offsets of Spark's own Kafka source, which know no topic ids."""
    positions = positions_of(document)
    return None if positions is None else Offsets(positions, dict.fromkeys(document, ""))


def reads_now(query: Query) -> tuple[int, tuple[ReadProgress, ...]]:
    """How far the reads of a query have come that runs, whether or not a batch has ended in this run.

    Returns:
        How many sources the query has, and those that are reads of kdsl; nothing where that cannot be had.
    """
    if is_connect(query.session):
        return 0, ()
    sources = [
        {"description": description, "endOffset": end}
        for description, end, _ in _sources(_running(query.session, query))
    ]
    return len(sources), tuple(Listener(query.session).reads(query, sources))


def _running(spark: SparkSession, query: Query) -> Any:
    """Java's object of a query; None where it has ended, and on Spark Connect."""
    if is_connect(spark):
        return None
    session: Any = spark
    found = session._jsparkSession.streams().get(query.id)  # noqa: SLF001
    return None if found is None else found.streamingQuery()


def _sources(running: Any) -> list[tuple[str, str | None, str]]:
    """The sources of a query, in the order of its progress: what each is, its offsets, and its option ``kdsl.read``.

    Args:
        running: Java's object of the query; of None nothing is known.
    """
    if running is None:
        return []
    offsets = running.committedOffsets()
    found: dict[str, tuple[str, str | None, str]] = {}
    for leaf in items(running.logicalPlan().collectLeaves()):
        kind = kind_of(leaf)
        if not kind.startswith("Streaming"):
            continue
        stream, option, offset = None, "", None
        if kind in ("StreamingDataSourceV2ScanRelation", "StreamingDataSourceV2Relation"):
            relation = leaf.relation() if kind == "StreamingDataSourceV2ScanRelation" else leaf
            stream, option = leaf.stream(), relation.options().getOrDefault(READ_OPTION, "")
            ended = offsets.get(stream)
            offset = ended.get().json() if ended.isDefined() else None
        found.setdefault(leaf.toString() if stream is None else str(stream.hashCode()), (str(stream), offset, option))
    return list(found.values())
