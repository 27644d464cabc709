"""Spark Declarative Pipelines: whether a session's code defines one."""

from __future__ import annotations

import sys

_REGISTRY = "pyspark.pipelines.graph_element_registry"


def in_pipeline() -> bool:
    """Whether this code runs in a definition file of a pipeline, where Spark refuses analysis and most commands."""
    module = sys.modules.get(_REGISTRY)
    if module is None:
        return False
    from pyspark.errors import PySparkException

    try:
        module.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True
