"""Files of cases as tests of pytest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdsl.errors import KdslError
from kdsl.testing.cases.document import read_cases
from kdsl.testing.cases.model import Case, CaseFile
from kdsl.testing.cases.results import Services
from kdsl.testing.cases.run import run_case

_SERVICES = pytest.StashKey[Services]()


class CaseError(Exception):
    """A case failed; the message is what differs."""


class CaseModule(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases.

        Raises:
            CollectError: The file has mistakes.
        """
        try:
            file = read_cases(self.path)
        except (KdslError, OSError) as e:
            raise self.CollectError(str(e)) from None
        for case in file.cases:
            yield CaseItem.from_parent(self, name=case.name, file=file, case=case)


class CaseItem(pytest.Item):
    """A case."""

    def __init__(self, *, file: CaseFile, case: Case, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._file, self._case = file, case

    def runtest(self) -> None:
        """Run the case.

        Raises:
            CaseError: Something differs.
        """
        result = run_case(self._file, self._case, _open_services(self.config))
        if result.lines:
            raise CaseError("\n".join(result.lines))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What differs, without a traceback."""
        if isinstance(excinfo.value, CaseError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The location of the case, and its name."""
        line = self._case.where.line
        return self.path, None if line is None else line - 1, self.name


def _open_services(config: pytest.Config) -> Services:
    """Return what runs the cases of this run of pytest; it stops with it."""
    if _SERVICES not in config.stash:
        services = Services(settings=spark_settings(config))
        config.stash[_SERVICES] = services
        config.add_cleanup(services.close)
    return config.stash[_SERVICES]


def spark_settings(config: pytest.Config) -> dict[str, str]:
    """The settings of Spark sessions that the project declares."""
    lines = [line.partition("=") for line in config.getini("kdsl_spark_settings")]
    return {key.strip(): value.strip() for key, _, value in lines}
