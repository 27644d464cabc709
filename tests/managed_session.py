"""Sessions as on managed platforms, which do not allow settings to be changed, or do not show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse_settings(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session refuse every change of a setting, with the error of a managed one."""
    from pyspark.errors import AnalysisException

    def refuse(self: Any, name: str, *value: Any) -> None:
        raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")

    for name in ("set", "unset"):
        monkeypatch.setattr(type(session.conf), name, refuse)


def show_no_settings(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session refuse to show settings of kdsl, and those of Spark that PySpark itself does not ask for."""
    from pyspark.errors import AnalysisException

    show = type(session.conf).get

    def refuse(self: Any, name: str, *default: Any) -> Any:
        if name.startswith(("spark.kdsl.", "spark.speculation", "spark.sql.caseSensitive", "spark.sql.streaming.")):
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")
        return show(self, name, *default)

    monkeypatch.setattr(type(session.conf), "get", refuse)
