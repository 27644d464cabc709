"""What Debezium writes for every type of Postgres: the recorded messages, which other tests read, are still so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdsl.testing.local_registry import LocalRegistry
from kdsl.testing.running import RunningKafka
from tests.debezium.connect import ConnectWorker
from tests.debezium.record import CONNECTORS, record
from tests.formats.debezium_messages import PLACE, Message, load_messages
from tests.postgres import Postgres

TOPICS = [f"{name}.shop.{table}" for name, (tables, _) in CONNECTORS.items() for table in tables]


@pytest.fixture(scope="module")
def message_folder(
    debezium: ConnectWorker,
    postgres: Postgres,
    kdsl_kafka: RunningKafka,
    registry: LocalRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder with the messages of a Debezium that runs now."""
    folder = tmp_path_factory.mktemp("messages")
    record(postgres, kdsl_kafka, registry, debezium, folder)
    return folder


@pytest.mark.parametrize("topic", TOPICS)
def test_changes_in_json_are_as_recorded(topic: str, message_folder: Path) -> None:
    assert [summarize(m) for m in load_messages(topic, message_folder)] == [summarize(m) for m in load_messages(topic)]


@pytest.mark.parametrize("name", ["avro.shop.full", "avro.shop.toast_default"])
def test_avro_messages_have_the_recorded_schemas(name: str, message_folder: Path) -> None:
    now, then = (
        json.loads((folder / "schemas.json").read_text(encoding="utf-8")) for folder in (message_folder, PLACE)
    )
    for side in ("key", "value"):
        assert now[f"{name}-{side}/1"]["schema"] == then[f"{name}-{side}/1"]["schema"]
    assert [m.key and m.key[5:] for m in load_messages(name, message_folder)] == [
        m.key and m.key[5:] for m in load_messages(name)
    ]


def summarize(message: Message) -> Any:
    """What a message says of rows, without what is another each time: positions in the log and times."""
    document = None if message.value is None else json.loads(message.value)
    if not isinstance(document, dict):
        return message.key, document
    change = document.get("payload", document)
    results = {
        name: value for name, value in change.items() if name not in ("source", "transaction") and name[:3] != "ts_"
    }
    return message.key, document.get("schema"), results
