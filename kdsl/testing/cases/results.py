"""What comes of cases, and what runs them when it is needed: Spark and a Kafka of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from kdsl.extras import explain_missing_package
from kdsl.testing.cases.model import Case, Expectation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.local_kafka import LocalKafka


@attrs.frozen
class Outcome:
    """What came of a step.

    Attributes:
        compare: Returns the lines of the differences from what is expected; none if there are none.
        record: What came, as a document has it under ``expect``.
    """

    compare: Callable[[Expectation], list[str]]
    record: Mapping[str, Any]


@attrs.frozen
class CaseResult:
    """The result of a case.

    Attributes:
        case: The case.
        lines: The differences, or the error; none if it passed.
        records: What came of each step, as a document has it under ``expect``; fewer after an error.
        seconds: How long it took.
    """

    case: Case
    lines: tuple[str, ...]
    records: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0

    @property
    def can_be_recorded(self) -> bool:
        """Whether all that differs is that nothing is expected of some steps."""
        steps = zip(self.case.steps, self.records, strict=False)
        return len(self.lines) == sum(step.expect is None for step, _ in steps)


class Services:
    """Spark and a local Kafka for cases, each started when the first case needs it; a context manager.

    Args:
        settings: Further settings of the session.
        progress: Shows what is started; by default nothing does.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        progress: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._settings, self._progress = settings, progress
        self._stack = ExitStack()
        self._kafka: LocalKafka | None = None
        self._spark: SparkSession | None = None

    def spark(self) -> SparkSession:
        """The session."""
        if self._spark is None:
            from kdsl.testing.sessions import local_session

            with self._progress("starting Spark"), explain_missing_package("a column that only Spark computes"):
                self._spark = self._stack.enter_context(local_session(self._settings))
        return self._spark

    def kafka(self) -> LocalKafka:
        """The Kafka, which nobody else uses: cases delete its topics."""
        if self._kafka is None:
            from kdsl.testing.local_kafka import LocalKafka

            with self._progress("starting Kafka"):
                self._kafka = self._stack.enter_context(LocalKafka())
        return self._kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop what was started."""
        self.close()

    def close(self) -> None:
        """Stop what was started; a later case starts it again."""
        self._spark = self._kafka = None
        self._stack.close()
