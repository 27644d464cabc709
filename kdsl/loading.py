"""Which file a command is importing: what runs there, runs although the command only looks at declarations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_log = logging.getLogger(__name__)
_loading: ContextVar[str | None] = ContextVar("loading", default=None)


@contextmanager
def loading(source: str) -> Iterator[None]:
    """Note that a command imports a file or a module in the body.

    Args:
        source: Its name.
    """
    token = _loading.set(source)
    try:
        yield
    finally:
        _loading.reset(token)


def warn_of_job(table: str) -> None:
    """Log a warning if a read or a write of a table begins while a command imports the file that contains it.

    Args:
        table: The name of the table.
    """
    if (source := _loading.get()) is not None:
        _log.warning(
            "loading %s starts a job: it reads or writes %s when it is imported, and the command waits for that; put "
            "what runs the job below the line: if __name__ == '__main__':",
            source, table,
        )  # fmt: skip
