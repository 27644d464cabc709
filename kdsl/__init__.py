"""Kafka tables for PySpark: declare a topic once as a typed class; read it and write it.

The names below are imported when they are first used, so that ``import kdsl`` is cheap, also in executors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdsl_formats.raw import Raw as Raw

    from kdsl.cluster import Cluster as Cluster
    from kdsl.declare.document import load_tables as load_tables
    from kdsl.errors import (
        KdslError as KdslError,
        Problem as Problem,
        RecordError as RecordError,
        ResolveError as ResolveError,
        Where as Where,
    )
    from kdsl.formats import Format as Format
    from kdsl.options import option as option
    from kdsl.resolve import resolve as resolve
    from kdsl.table import Table as Table
    from kdsl_formats.csv import Csv as Csv
    from kdsl_formats.json import Json as Json

# The same names as above; a test holds both lists equal.
_PUBLIC = {
    "Cluster": "kdsl.cluster",
    "Csv": "kdsl_formats.csv",
    "Format": "kdsl.formats",
    "Json": "kdsl_formats.json",
    "KdslError": "kdsl.errors",
    "Problem": "kdsl.errors",
    "Raw": "kdsl_formats.raw",
    "RecordError": "kdsl.errors",
    "ResolveError": "kdsl.errors",
    "Table": "kdsl.table",
    "Where": "kdsl.errors",
    "load_tables": "kdsl.declare.document",
    "option": "kdsl.options",
    "resolve": "kdsl.resolve",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kdsl' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
