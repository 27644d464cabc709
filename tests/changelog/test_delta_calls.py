"""What a Delta target asks Delta, without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from kdsl.changelog import delta, to_delta
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.types import model as t


class Opened:
    """Delta in a session, with a table of five bytes and without type widening."""

    def __init__(self, _: object) -> None:
        """Any session will do."""

    def active(self) -> nullcontext[None]:
        return nullcontext()

    def detail(self, _: DeltaTarget) -> dict[str, Any]:
        return {"sizeInBytes": 5, "properties": {}}


@pytest.mark.parametrize(
    ("column", "size"),
    [(t.Field("id", t.BigInt()), 0), (t.Field("other", t.BigInt()), 0), (t.Field("id", t.STRING), 5)],
)
def test_a_change_of_no_type_rewrites_nothing(column: t.Field, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_delta, "_Delta", Opened)
    monkeypatch.setattr(DeltaTarget, "read_columns", lambda *_: (t.Field("id", t.BigInt()),))
    spark: Any = None

    assert delta("/lake/t").bytes_to_rewrite(spark, [column]) == size
