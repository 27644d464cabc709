"""What the installed librdkafka says about itself, and clients of it that connect to nothing."""

from __future__ import annotations

import ctypes
import logging
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import confluent_kafka
from confluent_kafka.admin import AdminClient

from kdsl.client_settings.model import Client
from kdsl.client_settings.to_librdkafka import LibrdkafkaSettings
from kdsl.errors import Problem

DATA = Path(__file__).parent / "data"
NOWHERE = "127.0.0.1:1"


def errors(translated: LibrdkafkaSettings) -> list[Problem]:
    """The problems that prevent a client."""
    return [problem for problem in translated.problems if problem.severity == "error"]


@attrs.frozen
class Property:
    """A row of librdkafka's own list of properties."""

    name: str
    clients: str
    low: int | None
    high: int | None
    default: str
    alias: str | None
    callback: bool


@cache
def read_installed_properties() -> tuple[Property, ...]:
    """The properties of the installed library, read out of the library."""
    (path,) = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*")
    library, c = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    c.open_memstream.restype = ctypes.c_void_p
    c.open_memstream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    c.fclose.argtypes = [ctypes.c_void_p]
    library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = c.open_memstream(ctypes.byref(text), ctypes.byref(size))
    library.rd_kafka_conf_properties_show(stream)
    c.fclose(stream)
    assert text.value is not None
    lines = [line for line in text.value.decode().splitlines() if re.match(r"[a-z][\w.]* +\|", line)]
    return tuple(_property(line) for line in lines)


def _property(line: str) -> Property:
    name, clients, span, default, _, doc = (part.strip() for part in line.split("|", 5))
    limits = re.fullmatch(r"(-?\d+) \.\. (-?\d+)", span)
    alias = re.search(r"Alias for `([^`]+)`", doc)
    low, high = (int(limits[1]), int(limits[2])) if limits else (None, None)
    return Property(name, clients, low, high, default, alias and alias[1], "see dedicated API" in doc)


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def create(client: Client, settings: Mapping[str, str]) -> list[str]:
    """Make a real client; gives what librdkafka says against its configuration, raises what it refuses."""
    log = _Log()
    logger = logging.Logger("librdkafka", logging.DEBUG)
    logger.addHandler(log)
    sample: dict[str, Any] = {"bootstrap.servers": NOWHERE, **settings}
    if client == "consumer":
        consumer = confluent_kafka.Consumer({"group.id": "g", **sample}, logger=logger)
        consumer.poll(0)
        consumer.close()
    elif client == "producer":
        producer = confluent_kafka.Producer(sample, logger=logger)
        producer.poll(0)
    else:
        admin = AdminClient(sample, logger=logger)
        admin.poll(0)
    return [line for line in log.lines if "CONFWARN" in line and "bootstrap.servers" not in line]
