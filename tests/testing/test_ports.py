from __future__ import annotations

import socket

from kdsl.testing.ports import answers, free_port, is_free


def test_a_free_port_is_neither_taken_nor_promised() -> None:
    first = free_port()
    second = free_port(taken={first})

    assert first != second
    assert is_free(second)


def test_a_port_in_use_is_not_free_and_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not is_free(port)
        assert answers(port)
    assert not answers(port)
