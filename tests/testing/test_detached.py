from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import attrs
import cattrs
import pytest

from kdsl.testing import LocalKafka, LocalKafkaError, LocalRegistry, LocalRegistryError, detached
from kdsl.testing.detached import DetachedBroker, DetachedKafka


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KDSL_CACHE", str(tmp_path))
    (tmp_path / "state" / "kafka").mkdir(parents=True)
    return tmp_path / "state" / "kafka"


def _kafka(pid: int, mark: str, data_dir: Path) -> DetachedKafka:
    return DetachedKafka(
        name="default",
        version="4.1.2",
        bootstrap_servers="127.0.0.1:9092",
        security=("plaintext",),
        data_dir=str(data_dir),
        temporary=True,
        started="2026-01-01T00:00:00+00:00",
        mark=mark,
        brokers=(DetachedBroker(id=1, pid=pid, port=9092, log="broker-1.log"),),
    )


def test_only_the_process_that_was_started_counts_and_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "kdsl-kafka-x"
    folder.mkdir()
    wait = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(300)", "-Dkdsl.mark=ours"]
    with subprocess.Popen(wait, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # a process that only begins has no command line yet
        ours = _kafka(child.pid, "-Dkdsl.mark=ours", folder)
        other = attrs.evolve(ours, mark="-Dkdsl.mark=theirs", temporary=False)

        assert other.running() == ()
        other.end()
        assert ours.running() == (1,)
        ours.end()

        assert child.wait(60) < 0
    assert not folder.exists()


def test_a_folder_that_kdsl_did_not_make_is_never_removed(tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()

    _kafka(os.getpid(), "-Dkdsl.mark=ours", folder).end()

    assert folder.exists()


def test_what_is_written_down_is_found_again(state: Path, tmp_path: Path) -> None:
    kafka = _kafka(1, "-Dkdsl.mark=ours", tmp_path)
    assert detached.find() is None

    (state / "default.json").write_text(json.dumps(cattrs.unstructure(kafka)))

    assert detached.find() == kafka


class BrokenRegistry:
    """A registry that starts, and cannot outlive this process."""

    pid, url, mark, data_dir = 1, "http://127.0.0.1:1", "-Dkdsl.mark=none", "schemas"
    stopped = False

    def start(self) -> BrokenRegistry:
        return self

    def detach(self) -> None:
        raise LocalRegistryError("it has ended")

    def stop(self) -> None:
        self.stopped = True


def test_a_registry_that_cannot_be_detached_is_not_recorded(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, registry = _kafka(1, "-Dkdsl.mark=ours", tmp_path), BrokenRegistry()
    (state / "default.json").write_text(json.dumps(cattrs.unstructure(kafka)))
    monkeypatch.setattr(DetachedKafka, "running", lambda kafka: tuple(broker.id for broker in kafka.brokers))

    with pytest.raises(LocalRegistryError, match="it has ended"):
        detached.start(cast("LocalKafka", None), registry=cast("LocalRegistry", registry))

    assert registry.stopped
    assert detached.find() == kafka


def test_a_note_that_cannot_be_read_is_named(state: Path) -> None:
    (state / "default.json").write_text("{")

    with pytest.raises(LocalKafkaError, match=r"default\.json cannot be read .*; remove it"):
        detached.find()


def test_a_name_stays_inside_the_folder() -> None:
    with pytest.raises(LocalKafkaError, match=r"'\.\./x' is not a valid name"):
        detached.find("../x")
