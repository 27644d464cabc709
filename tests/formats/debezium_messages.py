"""The messages in ``debezium/``, as `tests/debezium/record.py` recorded them of a real Debezium."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs

PLACE = Path(__file__).parent / "debezium"


@attrs.frozen
class Message:
    """A recorded message."""

    key: bytes | None
    value: bytes | None

    @property
    def operation(self) -> str | None:
        """What a change in JSON says happened; None of other messages."""
        document = {} if self.value is None else json.loads(self.value)
        change = document.get("payload", document) if isinstance(document, dict) else {}
        result: str | None = change.get("op")
        return result


@cache
def load_messages(topic: str, folder: Path = PLACE) -> tuple[Message, ...]:
    """The messages of a topic, ``<connector>.shop.<table>``, in their order.

    Args:
        topic: The topic.
        folder: The folder of the recorded messages.
    """
    connector = topic.partition(".")[0]

    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text) if connector == "avro" else text.encode()

    lines = (folder / f"{connector}.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in lines]
    return tuple(Message(data(one["key"]), data(one["value"])) for one in results if one["topic"] == topic)


@cache
def load_schemas() -> dict[int, Any]:
    """The schemas of the messages of the connector ``avro``, by id."""
    document = json.loads((PLACE / "schemas.json").read_text(encoding="utf-8"))
    return {one["id"]: one["schema"] for one in document.values()}
