"""Tells the tasks of a query where its checkpoint is, and which states its sources have."""

from __future__ import annotations

import orjson

from kdsl.run.listeners.events import Observer, Query
from kdsl.run.state_files.find import CHECKPOINT
from kdsl.run.upsert.spark_batches import NAMES, STATE_OPTION, find_names
from kdsl.spark_internals.plans import plan_of_query
from kdsl.spark_internals.queries import RunningQuery, set_in_query_session
from kdsl.spark_internals.session import is_connect


class CheckpointLocations(Observer):
    """Sets both in the session of each query, which passes it to tasks (an observer); not on Spark Connect."""

    def on_start(self, query: Query) -> None:
        """Set both; Spark waits for this before the first batch. AttributeError if the query has ended.

        On Spark Connect nothing is set.
        """
        if not is_connect(query.session):
            location = RunningQuery(query.session, query.id).checkpoint
            set_in_query_session(query.session, query.id, CHECKPOINT, location)
            options = _state_options(query)
            if options:
                names = orjson.dumps(find_names(options)).decode()
                set_in_query_session(query.session, query.id, NAMES, names)


def _state_options(query: Query) -> list[str]:
    """Return the options of a query's sources of Spark's own whose rows are stored."""
    plan = plan_of_query(query.session, query.id)
    sources = () if plan is None else (leaf for leaf in plan.leaves() if leaf.class_name == "StreamingRelationV2")
    return [option for option in (source.source_option(STATE_OPTION) for source in sources) if option is not None]
