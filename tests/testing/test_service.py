"""What all local services share, on a service that is one Python process."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import psutil
import pytest

from kdsl.testing import LocalKafkaError
from kdsl.testing.service import LocalService, ServiceProcess

READY = "print('ready', flush=True); import time; time.sleep(300)"


class OneProcess(LocalService):
    _error = LocalKafkaError
    _folder_prefix = "kdsl-one-"

    def __init__(self, program: str = READY, *, timeout: float = 60.0, data_dir: Path | None = None) -> None:
        super().__init__(timeout=timeout, data_dir=data_dir)
        self.program = program

    def _start_processes(self) -> None:
        self.process = ServiceProcess("The process", self.data_dir / "log")
        self.process.spawn([sys.executable, "-c", self.program, self.mark], dict(os.environ))
        self.process.wait_until(lambda: "ready" in self.process.tail(), self._timeout, LocalKafkaError)

    def _end_processes(self) -> None:
        self.process.kill()

    def _disown_processes(self) -> None:
        self.process.disown()


def test_a_service_runs_within_its_context_and_takes_its_folder_along() -> None:
    with OneProcess() as service:
        folder, pid = service.data_dir, service.process.pid
        assert pid is not None
        assert service.mark in psutil.Process(pid).cmdline()
        assert service.start() is service  # a second start does nothing
        assert service.process.pid == pid

    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    assert service.mark == ""
    with pytest.raises(LocalKafkaError, match="This OneProcess is not started; call start"):
        _ = service.data_dir


def test_a_folder_that_is_named_stays(tmp_path: Path) -> None:
    with OneProcess(data_dir=tmp_path):
        pass

    assert "ready" in (tmp_path / "log").read_text()


def test_a_process_that_ends_is_reported_with_its_log_and_leaves_nothing() -> None:
    service = OneProcess("print('no such thing'); raise SystemExit(3)")

    with pytest.raises(LocalKafkaError, match=r"(?s)The process has ended with exit code 3; .*no such thing"):
        service.start()

    with pytest.raises(LocalKafkaError, match="is not started"):
        _ = service.data_dir


def test_a_process_that_is_never_ready_is_reported() -> None:
    with pytest.raises(LocalKafkaError, match=r"The process is not ready after 0.2 s"):
        OneProcess("import time; time.sleep(300)", timeout=0.2).start()


def test_a_process_can_be_frozen_ended_and_started_again(tmp_path: Path) -> None:
    with OneProcess(data_dir=tmp_path) as service:
        process = service.process
        assert process.pid is not None
        process.freeze()
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert not process.wait(0.01)
        process.terminate()  # which a frozen process would not notice
        assert process.wait(60)
        assert process.pid is process.exit_code is None
        process.spawn([sys.executable, "-c", "print('again')", service.mark], dict(os.environ))
        assert process.wait(60)

        assert process.tail() == "ready\nagain"


def test_processes_can_outlive_the_service() -> None:
    service = OneProcess().start()
    folder, pid = service.data_dir, service.process.pid
    assert pid is not None

    service.detach()

    assert psutil.pid_exists(pid)
    assert folder.exists()
    psutil.Process(pid).kill()
    os.waitpid(pid, 0)
    shutil.rmtree(folder)
