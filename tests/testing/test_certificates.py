"""The certificates of a local Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdsl.testing import certificates
from kdsl.testing.certificates import Certificates, Pair


def test_a_user_has_one_certificate_which_is_signed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    sign = certificates.make_pair

    def make_pair(name: str, *arguments: Any, **options: Any) -> Pair:
        signed.append(name)
        return sign(name, *arguments, **options)

    monkeypatch.setattr(certificates, "make_pair", make_pair)
    store = Certificates(tmp_path / "keys")

    first, again, other = store.user("ann"), store.user("ann"), store.user("bob")
    store.key_store("ann")

    assert first is again is not other
    assert [name for name in signed if name in ("ann", "bob")] == ["ann", "bob"]
