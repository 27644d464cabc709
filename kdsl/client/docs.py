"""The reference page of client settings, made from the table; ``python -m kdsl.client.docs`` prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from kdsl.client import librdkafka
from kdsl.client.model import Setting, Target
from kdsl.client.security_settings import SECURITY
from kdsl.client.settings import CLIENTS, CONNECTOR, CONSUMER, PRODUCER
from kdsl.client.translate import FIXED

_INTRO = """\
<!-- Made by python -m kdsl.docs from the table of the settings; do not edit. -->

# Kafka client settings

Write the names of Kafka's own (Java) clients, in `properties.*` of a table or in the properties of a `Cluster`. kdsl
translates them for librdkafka as the tables below say. Java's defaults hold, also where librdkafka's differ. One set of
properties serves consumers, producers and the admin client: each takes what it has and passes over the rest. A name
that no client knows is a warning, with the nearest one that exists.

The clients are c (consumer), p (producer) and a (admin). A whole number outside of librdkafka's range gets the nearest
within it, with a warning. Values may hold references: `${env:NAME}`, `${file:PATH}`, `${file:PATH:KEY}`,
`${secret_values.NAME}`; `$${` is a literal `${`.
"""

_OWN = """\
## librdkafka's own

These properties are librdkafka's alone, and pass as they are. Where a Java setting does the same, it is in brackets. A
second name of a Java setting counts as that setting. A Java setting and a property that do the same with different
values are an error.
"""

_FIXED = """\
## Fixed by kdsl

kdsl sets these itself, whatever is given:
"""


def reference() -> str:
    """The page docs/client-settings.md."""
    parts = [
        _INTRO,
        _section("Every client", CLIENTS),
        _section("Consumer", CONSUMER),
        _section("Producer", PRODUCER),
        _section("TLS and SASL", SECURITY),
        _section("kdsl's own", CONNECTOR),
        _OWN,
        *(f"{title}: {_own(names)}\n" for title, names in _OWN_SECTIONS),
        "Not to be set: " + ", ".join(f"`{name}`" for name in sorted(librdkafka.OWNED)) + ".\n",
        _FIXED,
        *[f"- {client}: `{name}={text}`" for client, fixed in FIXED.items() for name, text in fixed.items()],
    ]
    return "\n".join(parts) + "\n"


_OWN_SECTIONS = (
    ("Every client", librdkafka.ANY),
    ("Consumer", librdkafka.CONSUMER),
    ("Producer", librdkafka.PRODUCER),
)


def _own(names: Iterable[str]) -> str:
    return (
        ", ".join(f"`{n}`{f' (`{librdkafka.JAVA[n]}`)' if n in librdkafka.JAVA else ''}" for n in sorted(names)) + "."
    )


def _section(title: str, rows: Iterable[Setting]) -> str:
    lines = [
        f"## {title}",
        "",
        "| setting | clients | with librdkafka | Java's default, set | |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| `{row.name}` | {row.clients} | {_fate(row)} | {_defaults(row)} | {_remark(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _fate(row: Setting) -> str:
    match row.act:
        case "same" | "renamed":
            return ", ".join(_target(row, target) for target in row.targets)
        case "derived":
            return "read with others"
        case "dropped":
            return "dropped, a warning"
        case "refused":
            return "refused"
        case "owned":
            return "refused"
        case "connector":
            return "read by kdsl"


def _target(row: Setting, target: Target) -> str:
    name = "the same" if target.name == row.name else f"`{target.name}`"
    limited = target.clients and target.clients != row.clients
    span = "" if target.low is None else f" ({target.low} to {target.high})"
    return f"{name}{span}{f' for {target.clients}' if limited else ''}"


def _defaults(row: Setting) -> str:
    texts: dict[str, str] = {}
    for letter, text in row.default.items():
        texts[text] = texts.get(text, "") + letter
    whole = len(texts) == 1 and set(row.clients) == set(row.default)
    return ", ".join(f"`{text}`" + ("" if whole else f" ({letters})") for text, letters in texts.items())


def _remark(row: Setting) -> str:
    values = ", ".join(f"`{v}`" for v in row.values)
    parts = (values, row.note, row.instead)
    return "; ".join(part for part in parts if part).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
