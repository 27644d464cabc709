"""What Spark's Python processes are set to when kdsl's code runs in them."""

from __future__ import annotations

import gc
import pickle
import socket
from typing import IO

import pytest

from kdsl.run.librdkafka.datasource import KdslDataSource
from kdsl.run.librdkafka.source import BatchReader, StreamReader
from kdsl.run.records.memory import exclude_loaded_objects
from kdsl.spark_internals.workers import exchange_packets_at_once


def _main(outfile: IO[bytes], overwrite: bool = False) -> None:  # pyspark's function has this name
    """Create a writer as pyspark does in the process that commits batches."""
    from pyspark.sql.types import StructType

    KdslDataSource({}).streamWriter(StructType(), overwrite)


def no_delay(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_a_process_that_commits_answers_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
        connection.makefile("wb") as outfile,
    ):
        assert not no_delay(connection)

        _main(outfile)

        assert no_delay(connection)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has the option")
@pytest.mark.parametrize("kind", [BatchReader, StreamReader])
def test_a_task_acknowledges_its_function_before_it_waits_for_rows(kind: type[BatchReader | StreamReader]) -> None:
    def main(outfile: IO[bytes]) -> None:  # pyspark's function has this name
        assert outfile.writable()
        pickle.loads(pickle.dumps(kind(())))

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as connection,
        connection.makefile("wb") as outfile,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)

        main(outfile)

        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_a_socket_without_tcp_is_left_alone() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other, one.makefile("wb") as outfile:
        _main(outfile)
        outfile.write(b"still open")
        outfile.flush()
        assert other.recv(10) == b"still open"


def test_outside_of_a_process_of_spark_nothing_happens() -> None:
    exchange_packets_at_once()


def test_what_is_loaded_is_not_searched_for_garbage() -> None:
    try:
        exclude_loaded_objects()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
