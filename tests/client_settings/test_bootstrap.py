from __future__ import annotations

import pytest

from kdsl.client_settings.bootstrap import AddressError, check_servers, normalize_servers, parse_address
from kdsl.cluster import Cluster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", "a:1"),
        (" a:1 ,, b_2.example-x:65535,", "a:1,b_2.example-x:65535"),
        ("PLAINTEXT://a:1,SASL_SSL://b:2", "a:1,b:2"),
        ("[::1]:9092,fe80::1:9092", "[::1]:9092,[fe80::1]:9092"),
        ("${env:KAFKA}", "${env:KAFKA}"),
    ],
)
def test_entries_are_written_in_one_form(text: str, expected: str) -> None:
    assert normalize_servers(text) == expected
    assert list(check_servers(text)) == []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["'bootstrap.servers' contains no broker; "]),
        (" , ", ["'bootstrap.servers' contains no broker; "]),
        ("kafka", ["the entry 'kafka' of 'bootstrap.servers' has no port; write 'kafka:9092'"]),
        ("a b:1", ["the entry 'a b:1' of 'bootstrap.servers' is not of the form host:port; "]),
        ("a:1;b:2", ["the entry 'a:1;b:2' of 'bootstrap.servers' is not of the form host:port; "]),
        ("a:0", ["the entry 'a:0' of 'bootstrap.servers' has a port outside 1 to 65535; "]),
        ("a:x,b:65536,c:1", ["the entry 'a:x' of", "the entry 'b:65536' of"]),
    ],
)
def test_each_wrong_entry_is_reported(text: str, messages: list[str]) -> None:
    results = [str(problem) for problem in check_servers(text)]

    assert len(results) == len(messages)
    assert [f.startswith(m) for f, m in zip(results, messages, strict=True)] == [True] * len(messages)


@pytest.mark.parametrize(
    "text",
    ["SASL_SSL://u:HUSH@a:9093", "u:HUSH@a:9093,b:9092", "SASL_SSL://u:x@HUSH,HUSH@a:1", "HUSH@a:1", "a:1,u:HUSH@b"],
)
def test_a_login_is_refused_and_not_quoted(text: str) -> None:
    cluster = Cluster(text, properties={"bootstrap.servers": f"x:1,{text}"})
    own = Cluster(text)
    with pytest.raises(AddressError, match="is not of the form host:port") as of_address:
        parse_address(text)

    (problem,) = check_servers(text)
    assert "contains '@', as of a login" in str(problem)
    assert [problem] == [p for p in own.problems() if p.severity == "error"]
    assert "HUSH" not in f"{own.problems()} {cluster.problems()} {of_address.value} {own!r} {cluster!r} {own.label}"
