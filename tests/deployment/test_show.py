"""How differences are printed, without a broker."""

from __future__ import annotations

from kdsl import Diff, Difference, Where


def test_differences_are_grouped_by_topic_and_summarized() -> None:
    at = Where(file="orders.py", line=14)
    diff = Diff(
        (
            Difference("~", "topic", "orders", "keys move", "partitions", "6", "12", at),
            Difference(
                "!",
                "topic",
                "orders",
                "refused",
                "cleanup.policy",
                "delete",
                "compact",
                Where(file="orders.py", line=40),
            ),
            Difference("+", "topic", "orders.dead", "no such topic", declared="3 partitions", where=at),
            Difference(
                "~",
                "subject",
                "orders-value",
                "+ note STRING",
                live="version 7",
                declared="the schema of Orders",
                where=at,
            ),
            Difference("?", "cluster", "a:9092", "no broker\nanswers"),
        )
    )

    assert str(diff).splitlines() == [
        "topic orders  declared orders.py:14",
        "  ~ partitions      6 → 12            keys move",
        "  ! cleanup.policy  delete → compact  refused (orders.py:40)",
        "+ topic orders.dead  3 partitions  no such topic  (orders.py:14)",
        "~ subject orders-value  version 7 → the schema of Orders  + note STRING  (orders.py:14)",
        "? cluster a:9092  no broker answers",
        "1 to create, 2 to change, 1 refused, 1 not comparable.",
    ]


def test_names_with_characters_that_a_terminal_does_not_show_are_quoted() -> None:
    diff = Diff((Difference("!", "table", "a\x1b[2Jb\n+ topic x", "why"),))

    assert str(diff).splitlines()[0] == "! table 'a\\x1b[2Jb\\n+ topic x'  why"


def test_topics_of_several_clusters_are_shown_with_their_cluster() -> None:
    diff = Diff(tuple(Difference("~", "topic", "t", "", "partitions", "1", "2", place=p) for p in ("a:1", "b:1")))

    assert [line for line in str(diff).splitlines() if line.startswith("topic")] == ["topic t on a:1", "topic t on b:1"]
