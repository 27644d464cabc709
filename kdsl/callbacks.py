"""Functions that users give to kdsl: their arguments, and how another process finds them.

An offsets initializer gets an `OffsetsRetriever`, a partitioner gets a `PartitionerInput`. A plan is a string, so it
holds such a function by its name, ``package.module:function``, and the process that calls the function imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from kdsl.errors import KdslError, nearest

__all__ = [
    "EARLIEST",
    "LATEST",
    "PARTITIONERS",
    "FunctionError",
    "KafkaTopicPartition",
    "OffsetsRetriever",
    "Partitioner",
    "PartitionerInput",
    "TopicPartition",
    "import_function",
    "import_name",
]

TopicPartition: TypeAlias = tuple[str, int]
"""A topic and the number of one of its partitions."""


class KafkaTopicPartition(NamedTuple):
    """A topic partition with the attribute names of PyFlink; it equals the plain tuple.

    Attributes:
        topic: The topic.
        partition: The number of the partition, from 0.
    """

    topic: str
    partition: int


EARLIEST = -2
"""The special offset for the first record of a partition."""
LATEST = -1
"""The special offset for the end of a partition."""


class OffsetsRetriever(Protocol):
    """Asks the cluster for offsets, for many partitions in one request."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of the first record of each partition."""
        ...

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition that can be read now."""
        ...

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that the consumer group has committed; partitions without one are left out."""
        ...

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The offset of the first record of each partition that is not older; None if all records are older.

        Args:
            timestamps: Milliseconds since 1970-01-01 UTC by partition.

        Raises:
            KafkaReadError: The brokers refuse or do not answer, as for the other methods.
        """
        ...


PARTITIONERS = ("default", "fixed", "round-robin")
"""The names of the built-in partitioners (RULES SP-1 to SP-4)."""


@attrs.frozen(eq=False)
class PartitionerInput:
    """Records of one topic that have no partition yet, in order (RULES SP-5).

    Attributes:
        rows: The rows of the table from which the records were encoded, with the columns that the table writes.
        keys: The encoded keys, null for a record without one. None if the table has no key.
        values: The encoded values, null for a tombstone. None if the table has no value.
        topic: The topic.
        partitions: The number of partitions of the topic.
        task: The index of the task that writes the records, from 0.
    """

    rows: pa.RecordBatch
    keys: pa.BinaryArray | None
    values: pa.BinaryArray | None
    topic: str
    partitions: int
    task: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


Partitioner: TypeAlias = Callable[[PartitionerInput], "np.ndarray[Any, np.dtype[Any]] | pa.Array | pa.ChunkedArray"]
"""A partitioner: returns the partition of each record, as an array of integers.

It is called with whole batches, once for each topic that a batch has records for, and must return an array as long as
the batch. Equal input must give equal partitions if a batch is to be written again in the same way.
"""


class FunctionError(KdslError):
    """A function that another process cannot import, or that does not exist.

    Args:
        reason: What is wrong.
        fix: What to do.
    """

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason, self.fix = reason, fix

    def __str__(self) -> str:
        return f"{self.reason}; {self.fix}"


def import_name(function: Callable[..., Any]) -> str:
    """The name by which another process can import a function: ``package.module:function``; nothing is imported.

    Args:
        function: A function or a class at the top of a module, or a method of such a class.

    Raises:
        FunctionError: It is a lambda, a local function, an object without a name, or defined in a main program that was
            not started with ``python -m``; or another object has its name, for example because it was decorated.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    fix = "define it with def at the top of a module that all processes can import"
    if not isinstance(module, str) or not isinstance(name, str):
        raise FunctionError(f"{function!r} has no name by which it can be imported", fix)
    if "<lambda>" in name:
        raise FunctionError("a lambda has no name by which another process can import it", fix)
    if "<locals>" in name:
        local = name.replace(".<locals>", "")
        raise FunctionError(f"{local} is defined inside a function, so no other process can import it", fix)
    if module == "__main__":
        module = _main_module() or module
    if module == "__main__":
        reason = f"{name} is defined in the main program, which other processes cannot import"
        raise FunctionError(reason, "move it to a module of its own, and import it from there")
    full_name = f"{module}:{name}"
    if module in sys.modules and _lookup(sys.modules[module], name) is not function:
        reason = f"the name {full_name} now refers to another object than this function (was it decorated?)"
        raise FunctionError(reason, fix)
    return full_name


def import_function(name: str) -> Callable[..., Any]:
    """Import a function, and the module that defines it, by its name.

    Args:
        name: ``package.module:function``, or ``package.module:Class.method``.

    Raises:
        FunctionError: The import of the module fails in this process, whatever the error, or the module has no such
            function; or what has the name cannot be called.
    """
    module_name, _, path = name.partition(":")
    try:
        module = import_module(module_name)
    except Exception as e:
        missing = (
            isinstance(e, ModuleNotFoundError) and e.name is not None and f"{module_name}.".startswith(f"{e.name}.")
        )
        reason = (
            f"there is no module {e.name!r}" if missing and isinstance(e, ImportError) else f"{type(e).__name__}: {e}"
        )
        raise FunctionError(
            f"{name!r} cannot be imported in this process ({sys.executable}): {reason}",
            "the driver and every executor must have the module: install it there, or send it with "
            "spark-submit --py-files or spark.addArtifacts(…, pyfile=True)",
        ) from e
    function = _lookup(module, path)
    if function is None:
        raise FunctionError(
            f"the module {module_name!r} has no {path!r}{nearest(path, dir(module))}", "name one of its functions"
        )
    if not callable(function):
        raise FunctionError(
            f"{name!r} is a {type(function).__name__} and cannot be called",
            "name a function, as 'package.module:function'",
        )
    result: Callable[..., Any] = function
    return result


def _lookup(module: ModuleType, path: str) -> Any:
    """Look up a dotted path in a module; None if there is nothing."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _main_module() -> str | None:
    """The name under which the main program can be imported: that of ``python -m package.module``.

    None for a script, and for a package that ``python -m package`` runs.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec.name if spec is not None and not spec.name.endswith("__main__") else None
