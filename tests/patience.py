"""Answers of brokers that are waited for as long as a busy machine takes."""

from __future__ import annotations

import pytest


def wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let doctor find what it finds however busy the machine is: nothing is found because time has passed."""
    for name in ("reachability.port.TIMEOUT", "reachability.login.TIMEOUT", "admin.librdkafka_admin.FIRST_ANSWER"):
        monkeypatch.setattr(f"kdsl.run.{name}", 60.0)
    monkeypatch.setattr("kdsl.diagnostics.doctor.admin.ANSWER", 60.0)
