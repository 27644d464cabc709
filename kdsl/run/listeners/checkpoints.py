"""Tells the tasks of a query where its checkpoint is."""

from __future__ import annotations

from kdsl.run.listeners.events import Observer, Query
from kdsl.run.upsert.state_folder import CHECKPOINT
from kdsl.spark_internals.queries import RunningQuery, set_in_query_session
from kdsl.spark_internals.session import is_connect


class CheckpointLocations(Observer):
    """Sets the location in the session of each query, which passes it to tasks (an observer); not on Spark Connect."""

    def on_start(self, query: Query) -> None:
        """Set the location; Spark waits for this before the first batch. AttributeError if the query has ended.

        On Spark Connect nothing is set.
        """
        if not is_connect(query.session):
            location = RunningQuery(query.session, query.id).checkpoint
            set_in_query_session(query.session, query.id, CHECKPOINT, location)
