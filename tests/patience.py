"""Answers of brokers that are waited for as long as a busy machine takes, and those that never come."""

from __future__ import annotations

import pytest


def wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let doctor find what it finds however busy the machine is: nothing is found because time has passed."""
    for name in ("reachability.port.TIMEOUT", "reachability.login.TIMEOUT", "admin.admin_requests.FIRST_ANSWER"):
        monkeypatch.setattr(f"kdsl.run.{name}", 60.0)
    monkeypatch.setattr("kdsl.diagnostics.doctor.admin.ANSWER", 60.0)


def do_not_wait_for_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let topics that a broker does not know be missing at once: in the test they are missing for good."""
    monkeypatch.setattr("kdsl.run.admin.cluster_admin.SETTLING", 0.1)
