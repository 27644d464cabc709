"""One broker process of a local Kafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from kdsl.testing.errors import BrokerDiedError, LocalKafkaError
from kdsl.testing.kafka_jars import KafkaJars
from kdsl.testing.service import ServiceProcess

_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
# It logs the list of all settings twice at each start.
logger.values.name = org.apache.kafka.common.config.AbstractConfig
logger.values.level = WARN
"""


@attrs.define
class Broker(ServiceProcess):
    """A broker process that can be started, frozen, killed and started again with the same ports and data.

    Attributes:
        node_id: The broker's id, from 1.
        java: The ``java`` program.
        kafka: The jars to run.
        config: The file of its properties.
        heap: The maximum size of its heap, in MB.
        mark: An argument that identifies the processes of this Kafka.
        system: System properties of its JVM.
    """

    node_id: int
    java: Path
    kafka: KafkaJars
    config: Path
    heap: int
    mark: str
    system: Mapping[str, str]

    def start(self) -> None:
        """Write the logging configuration and start the process, without waiting until it is ready.

        Raises:
            LocalKafkaError: It is running already.
            OSError: The configuration or the log cannot be written, or Java cannot be started.
        """
        if self.running:
            raise LocalKafkaError(f"{self.name} is running already; stop it first")
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
        self.spawn(command, {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")})

    def check(self) -> None:
        """Check that the process has not ended by itself; one that was killed, stopped or never started passes.

        Raises:
            BrokerDiedError: It has ended; the message contains the end of its log.
        """
        if self.exit_code is not None:
            raise BrokerDiedError(
                f"{self.name} has ended with exit code {self.exit_code}; its log is {self.log}",
                node_id=self.node_id,
                log_tail=self.tail(),
            )
