"""The certificates of a local Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.testing import certificates
from kdsl.testing.certificates import Certificates


def test_a_user_has_one_certificate_which_is_signed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[str] = []
    make_pair = certificates.make_pair
    monkeypatch.setattr(
        certificates,
        "make_pair",
        lambda name, *args, **options: (signed.append(name), make_pair(name, *args, **options))[1],
    )
    store = Certificates(tmp_path / "keys")

    first, again, other = store.user("ann"), store.user("ann"), store.user("bob")
    store.key_store("ann")

    assert first is again is not other
    assert [name for name in signed if name in ("ann", "bob")] == ["ann", "bob"]
