"""One broker of a local Kafka, as a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs
import psutil

from kdsl.testing.errors import BrokerDiedError, LocalKafkaError
from kdsl.testing.kafka_jars import KafkaJars

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
# The list of all settings, twice at each start.
logger.values.name = org.apache.kafka.common.config.AbstractConfig
logger.values.level = WARN
"""


@attrs.define
class Broker:
    """A broker process that can be started, frozen, killed and started again with the same ports and data.

    Attributes:
        node_id: The broker's id, from 1.
        java: The ``java`` program.
        kafka: The jars to run.
        config: The file of its properties.
        log: The file that takes what it writes.
        heap: The most memory of its heap, in MB.
        mark: An argument that tells this broker's process from all others.
        system: System properties of its JVM.
    """

    node_id: int
    java: Path
    kafka: KafkaJars
    config: Path
    log: Path
    heap: int
    mark: str
    system: Mapping[str, str] = attrs.field(factory=dict)
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; it serves some time later.

        Raises:
            LocalKafkaError: It runs already.
        """
        if self.running:
            raise LocalKafkaError(f"Broker {self.node_id} runs already")
        logging = self.config.with_name("log4j2.properties")
        logging.write_text(_LOGGING, encoding="utf-8")
        command = [
            str(self.java),
            f"-Xms{min(128, self.heap)}m",
            f"-Xmx{self.heap}m",
            "-XX:+UseSerialGC",  # the least memory and threads for a heap of this size
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            *(f"-D{name}={value}" for name, value in self.system.items()),
            self.mark,
            *("-cp", self.kafka.classpath, "kafka.Kafka", str(self.config)),
        ]
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C is for the program that uses the broker, which then stops it in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")},
            )

    def check(self) -> None:
        """See that the process is there.

        Raises:
            BrokerDiedError: It was started, and has ended; the end of its log is in the message.
        """
        if self._process is not None and not self.running:
            raise BrokerDiedError(
                f"Broker {self.node_id} has ended with exit code {self._process.returncode}; its log is {self.log}",
                node_id=self.node_id,
                log_tail=tail(self.log),
            )

    def terminate(self) -> None:
        """Ask it to write everything down and end; ``wait`` sees it end."""
        if self._process is not None and self.running:
            self.thaw()  # a frozen process cannot hear
            self._process.terminate()

    def kill(self) -> None:
        """End it at once, as a power cut would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wait(self, seconds: float) -> bool:
        """Wait for its end; False if it still runs then."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
            self._process = None
        return True

    def freeze(self) -> None:
        """Stop it in its tracks (SIGSTOP); its ports stay open, and nobody answers."""
        if self._process is not None and self.running:
            psutil.Process(self._process.pid).suspend()

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        if self._process is not None and self.running:
            psutil.Process(self._process.pid).resume()

    def disown(self) -> None:
        """Forget the process without ending it."""
        if self._process is not None:
            self._process.returncode = 0  # so that Python does not warn of a process that nobody waited for
            self._process = None


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, or nothing if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65536))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
