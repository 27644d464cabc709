"""Log records as lines of JSON, for tools that collect logs: ``kdsl --log-format json``, or in a job's own logging."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kdsl.errors import Problem

_OF_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"})


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object on one line.

    Its members are ``time`` (ISO-8601 in UTC, with milliseconds), ``level``, ``logger`` and ``message``. A problem of a
    declaration also has ``code``, and ``table``, ``column``, ``file`` and ``line`` if they are known; an error has
    ``error``, its class, and ``traceback``. What a caller passes in ``extra=`` follows under its own names.

    A job uses it as any other formatter::

        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        logging.getLogger("kdsl").addHandler(handler)

    Source: https://docs.python.org/3/library/logging.html#formatter-objects
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break; values that JSON does not have are written as their strings."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= _describe_problem(find_problem(record))
        if record.exc_info and record.exc_info[0] is not None:
            document["error"] = record.exc_info[0].__name__
            document["traceback"] = self.formatException(record.exc_info)
        own = {name: value for name, value in vars(record).items() if name not in _OF_RECORDS}
        return json.dumps({**own, **document}, default=str, ensure_ascii=False)


def find_problem(record: logging.LogRecord) -> Problem | None:
    """The problem of a declaration that a record is about; None for other records."""
    problem = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return problem if isinstance(problem, Problem) else None


def _describe_problem(problem: Problem | None) -> Mapping[str, Any]:
    """The code and the location of a problem; nothing for None."""
    if problem is None:
        return {}
    where = problem.where
    known = {"table": where.table, "column": where.column, "file": where.file, "line": where.line}
    return {"code": problem.code, **{name: value for name, value in known.items() if value is not None}}
