from __future__ import annotations

import random
import socket

import pytest

from kdsl.testing.ports import answers, free_port, is_free


def test_a_free_port_is_neither_taken_nor_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    promised, sample = free_port(), random.sample
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(random, "sample", lambda ports, count: [taken, promised, *sample(ports, count)])

        assert free_port(taken={promised}) not in {taken, promised}


def test_a_port_in_use_is_not_free_and_answers() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # from here on nobody else can have it
        port = server.getsockname()[1]

        assert not answers(port)
        server.listen()
        assert answers(port)
        assert not is_free(port)
