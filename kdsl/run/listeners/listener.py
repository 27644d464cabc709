"""The listener of a session: it turns Spark's events into values, and passes them to the observers of this process.

What an observer raises is logged, and affects neither the query nor other observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.listeners.reads import READ_OPTION, Read, find, find_by_topics, stop_of
from kdsl.run.offsets.stored import Offsets, offset_document, positions_of
from kdsl.spark_internals.listener import EventKind, add_json_listener
from kdsl.spark_internals.queries import java_query, query_sources
from kdsl.spark_internals.session import is_connect, session_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

log = logging.getLogger("kdsl.queries")

_observers: list[Observer] = []
_listeners: dict[str, Listener] = {}
_lock = Lock()


def observe(observer: Observer) -> None:
    """Add an observer, which from now on receives the events of all sessions of this process that have a listener.

    One that was added before is ignored.
    """
    with _lock:
        if observer not in _observers:
            _observers.append(observer)


def listen(spark: SparkSession) -> None:
    """Register the listener of a session, unless it has one; it stays registered until the session ends.

    What Spark raises is raised here, and the session then has no listener.
    """
    key = session_id(spark)
    with _lock:
        if key in _listeners:
            return
        listener = _listeners[key] = Listener(spark)
    # Connect's client starts a thread for events, which is a daemon, and does not keep the process alive, if the thread
    # that starts it is one.
    failed: list[Exception] = []

    def add() -> None:
        try:
            listener.in_spark = add_json_listener(spark, listener.receive)
        except Exception as e:  # noqa: BLE001  # it is raised below, in the calling thread
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


class Listener:
    """The listener of a session.

    Attributes:
        session: The session.
        in_spark: What Spark has registered; None before.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark
        self.in_spark: StreamingQueryListener | None = None
        self._known: dict[tuple[str, int], Read] = {}
        self._names: dict[str, str | None] = {}
        self._running: dict[str, Any] = {}  # Java's queries, which Spark forgets before the last report of them comes

    def receive(self, kind: EventKind, document: Mapping[str, Any], java: Any = None) -> None:
        """Pass an event to all observers; errors are logged, because Spark would stop the listener.

        The listener remembers a run's name, Java's query and reads until the run ends.

        Args:
            kind: What has happened.
            document: The event as JSON; that of ``progress`` is the report.
            java: Java's object of the report, in a classic session.
        """
        try:
            run = document["runId"]
            if "name" in document:
                self._names[run] = document["name"]
            query = Query(document["id"], run, self._names.get(run), document.get("exception"), self.session)
            if kind == "progress":
                sources = document.get("sources") or ()
                progress = Progress(query, document["batchId"], len(sources), document, java)
                reads = tuple(self.reads(query, sources))
                self._notify(lambda observer: observer.on_progress(progress, reads))
            else:
                self._notify(lambda observer: getattr(observer, f"on_{kind}")(query))
            if kind == "start":
                self._running[run] = java_query(self.session, query.id)
            if kind == "end":
                self._names.pop(run, None)
                self._running.pop(run, None)
                for key in [key for key in self._known if key[0] == run]:
                    del self._known[key]
        except Exception:
            log.exception("cannot read an event of a streaming query")

    def _notify(self, call: Callable[[Observer], None]) -> None:
        """Call each observer; an exception is logged."""
        for observer in tuple(_observers):
            try:
                call(observer)
            except Exception:
                log.exception("%s failed at an event of a streaming query", type(observer).__name__)

    def reads(self, query: Query, sources: Sequence[Mapping[str, Any]]) -> Iterator[ReadProgress]:
        """Yield the progress of those of a query's sources that are reads of kdsl, registered in this process.

        Left out are sources without an end offset yet, those of other reads, and those of Spark's own whose read cannot
        be identified; which read such a source is, the listener remembers for the run (`_find_unnamed`).

        Args:
            query: The query.
            sources: Its sources, as Spark's report lists them in JSON.
        """
        for i, source in enumerate(sources):
            end = offset_document(source.get("endOffset"))
            if end is None:
                continue
            has_id = "read" in end
            parse = Offsets.from_json if has_id else _spark_offsets
            positions = parse(end)
            read = find(end["read"]) if has_id else self._find_unnamed(query, i, len(sources), source, positions)
            if read is None or positions is None:
                continue
            if not has_id:
                positions = attrs.evolve(positions, read=read.id, stop=stop_of(read))
            start, latest = (offset_document(source.get(name)) for name in ("startOffset", "latestOffset"))
            yield ReadProgress(
                read,
                None if start is None else parse(start),
                positions,
                None if latest is None else parse(latest),
                source.get("numInputRows") or 0,
                i,
            )

    def _find_unnamed(self, query: Query, index: int, count: int, source: Any, offsets: Offsets | None) -> Read | None:
        """Find the read of a source of Spark's own, whose offsets have no read id, and remember it for the run.

        It is the only one with the source's topics; of several, the one that the source's option names, which a classic
        session shows. None if there is none, or if the source is not Kafka.
        """
        if offsets is None or not str(source.get("description", "")).startswith("KafkaV2"):
            return None
        known = self._known.get((query.run_id, index))
        if known is not None:
            return known
        read: Read | None = None
        candidates = find_by_topics(topic for topic, _ in offsets.positions)
        if len(candidates) == 1:
            read = candidates[0]
        elif candidates and not is_connect(self.session):
            running = self._running.get(query.run_id) or java_query(self.session, query.id)
            ids = [source.option for source in query_sources(running, READ_OPTION)]
            read = find(ids[index]) if len(ids) == count else None
        if read is not None:
            self._known[query.run_id, index] = read
        return read


def _spark_offsets(document: Mapping[str, Any]) -> Offsets | None:
    """The offsets of Spark's own Kafka source, with empty topic ids; None if the source is not Kafka."""
    positions = positions_of(document)
    return None if positions is None else Offsets(positions, dict.fromkeys(document, ""))


def current_reads(query: Query) -> tuple[int, tuple[ReadProgress, ...]]:
    """Ask Spark for the progress of the reads of a running query, whether or not a batch has ended in this run.

    Py4J's errors are passed on.

    Returns:
        How many sources the query has, and those that are reads of kdsl; 0 and nothing for Spark Connect, and for a
        query that has ended.
    """
    if is_connect(query.session):
        return 0, ()
    sources = [
        {"description": source.description, "endOffset": source.offset}
        for source in query_sources(java_query(query.session, query.id), READ_OPTION)
    ]
    return len(sources), tuple(Listener(query.session).reads(query, sources))
