"""Spark jobs on other threads of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kdsl.spark_internals.session import is_spark_3, set_active_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")


def run_in_session(spark: SparkSession, function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function for a call on another thread, with this thread's local properties and a session's settings.

    The caller starts that thread. The function's jobs are those of the same query, and end with it.

    Args:
        spark: The session, which becomes the active one of the thread.
        function: The function.
    """
    from pyspark import inheritable_thread_target

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        set_active_session(spark)
        return function(*args, **kwargs)

    target: Any = inheritable_thread_target
    inherit = target if is_spark_3() else target(spark)
    inherited: Callable[P, T] = inherit(run)
    return inherited
