"""kdsl's own providers of secrets keep the contract of all providers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from kdsl.testing.contracts.secrets import SecretsContract


class TestEnvironment(SecretsContract):
    name: ClassVar[str] = "env"

    @pytest.fixture(autouse=True)
    def variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for key, secret in self.secrets().items():
            monkeypatch.setenv(key, secret)

    def secrets(self) -> Mapping[str, str]:
        return {"KDSL_TEST_PASSWORD": "HUSH-1", "KDSL_TEST_LOGIN": "HUSH ${env:OTHER}\n2"}

    def unknown_key(self) -> str:
        return "KDSL_TEST_MISSING"


class TestFiles(SecretsContract):
    name: ClassVar[str] = "file"

    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        for key, secret in self.secrets().items():
            Path(key).write_text(f"\n{secret}\n", encoding="utf-8")

    def secrets(self) -> Mapping[str, str]:
        return {f"{self._folder}/password": "HUSH-1", f"{self._folder}/two words": "HUSH\n2"}

    def unknown_key(self) -> str:
        return f"{self._folder}/missing"
