"""The reference pages, made of what the code declares: ``python -m kdsl.docs [ROOT]``.

Formats with the column types they hold, the connector's options, the client settings: none of it is written by hand. A
test holds the pages in ``docs`` and the declarations together.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import attrs

from kdsl.client.docs import reference as client_settings
from kdsl.declare.connector import KafkaOptions, Transport, UpsertOptions
from kdsl.declare.metadata import METADATA
from kdsl.formats import BUILT_IN, ROW_KIND, Format, format_class
from kdsl.resolve.transport import CAPABILITIES
from kdsl.run.metrics.docs import reference as metrics_page
from kdsl.script.options import CONNECTORS as SCRIPT_CONNECTORS, DatagenField
from kdsl.script.settings import Settings
from kdsl.types import model as t

ROOT = Path("docs")
_TRANSPORTS = Path("transports.md")
_MADE = re.compile(
    r"(?<=<!-- capabilities: made by python -m kdsl.docs; do not edit -->\n).*?(?=<!-- end -->)", re.DOTALL
)
_SAMPLES: tuple[tuple[str, t.DataType], ...] = (
    ("CHAR, VARCHAR, STRING", t.STRING),
    ("BINARY, VARBINARY, BYTES", t.BYTES),
    ("BOOLEAN", t.Boolean()),
    ("TINYINT, SMALLINT, INT, BIGINT", t.Int()),
    ("FLOAT, DOUBLE", t.Double()),
    ("DECIMAL(p, s)", t.Decimal(10, 2)),
    ("DATE", t.Date()),
    ("TIME(p), p up to 3", t.Time(3)),
    ("TIME(p), p over 3", t.Time(6)),
    ("TIMESTAMP(p)", t.Timestamp(6)),
    ("TIMESTAMP_LTZ(p)", t.TimestampLtz(6)),
    ("ARRAY of simple types", t.Array(t.Int())),
    ("ARRAY of nested types", t.Array(t.Array(t.Int()))),
    ("ROW of simple types", t.row(a=t.Int())),
    ("ROW of nested types", t.row(a=t.Array(t.Int()))),
    ("MAP with text keys", t.Map(t.VarChar(nullable=False), t.Int())),
    ("MAP with other keys", t.Map(t.Int(nullable=False), t.Int())),
    ("MULTISET of texts", t.Multiset(t.VarChar(nullable=False))),
)


def page(kind: type[Format]) -> str:
    """The reference page of a format, in Markdown."""
    name = kind.identifier
    prefix = "`value.` (or `key.`)" if kind.insert_only else "`value.`"
    parts = [
        "<!-- Made by python -m kdsl.docs from the declarations of the format; do not edit. -->",
        f"# The format `{name}`",
        inspect.getdoc(kind) or "",
        f"In Python `value={kind.__name__}()`; in YAML `'value.format' = '{name}'`, and the options with the "
        f"prefix {prefix}, as `'value.{name}.…'`.",
        "## Options",
        kind.reference(f"{name}."),
        *_changes(kind),
        "## Column types",
        *_types(kind),
    ]
    return "\n\n".join(parts) + "\n"


def _changes(kind: type[Format]) -> Iterable[str]:
    """What a format has beside its rows: what they say, and metadata."""
    if not kind.insert_only:
        yield "## Changes"
        yield (
            f"The rows are a changelog: the first column of the DataFrame is `{ROW_KIND}`, which says of each row "
            "whether it is new (`+I`), what it was before a change (`-U`) and after it (`+U`), or gone (`-D`). Where a "
            "DataFrame that is written lacks it, each row is new. It is no key format, and a table may have a primary "
            "key."
        )
    if kind.metadata:
        yield "## Metadata columns"
        yield "Read only, as virtual columns under these names."
        rows = ["| metadata | type |", "| --- | --- |"]
        rows += [f"| `value.{key}` | {of} |" for key, of in kind.metadata.items()]
        yield "\n".join(rows)


def _types(kind: type[Format]) -> Iterable[str]:
    if (told := kind.column_types()) is not None:
        yield told
        return
    made = kind()
    rows = ["| type | read | write |", "| --- | --- | --- |"]
    for words, sample in _SAMPLES:
        row = t.row(c=sample)
        read, write = (_answer(made, row, writing=writing) for writing in (False, True))
        rows.append(f"| {words} | {read} | {write} |")
    yield "\n".join(rows)


def _answer(made: Format, row: t.Row, *, writing: bool) -> str:
    return "no" if any(made.check(row, "write" if writing else "read")) else "yes"


def _metadata() -> str:
    metadata = ["| metadata | type | written, too | what it is |", "| --- | --- | --- | --- |"]
    for key in METADATA.values():
        writable = "where the table has several topics" if key.name == "topic" else "yes" if key.writable else "no"
        metadata.append(f"| `{key.name}` | {key.type} | {writable} | {key.doc} |")
    return "\n".join(metadata)


def connector_page() -> str:
    """The reference page of the connector's options and of the metadata, in Markdown."""
    parts = [
        "<!-- Made by python -m kdsl.docs from the declarations of the options; do not edit. -->",
        "# The connector `kafka`",
        "What a table says about its topics. A table class takes the options as arguments, under their Python names; a "
        "YAML document under Flink's keys. The formats are `key=` and `value=` (`key.format`, `value.format` or "
        "`format`), client settings `properties=` (`properties.*`), the consumer group `group_id=` "
        "(`properties.group.id`). A class says the start in one argument: `startup=` is a mode, an aware `datetime` or "
        "`{partition: offset}`.",
        "## Options",
        KafkaOptions.reference(),
        "## Metadata columns",
        _metadata(),
    ]
    return "\n\n".join(parts) + "\n"


def upsert_connector_page() -> str:
    """The reference page of the options of upsert tables, in Markdown."""
    parts = [
        "<!-- Made by python -m kdsl.docs from the declarations of the options; do not edit. -->",
        "# The connector `upsert-kafka`",
        "What an [upsert table](../upsert.md) says about its topics: `class Users(UpsertTable, …)`, or "
        "`'connector' = 'upsert-kafka'`. The columns of the primary key are the message key (`PrimaryKey[…]`, or "
        "`primary_key=`; `PRIMARY KEY (…) NOT ENFORCED`), and both formats are named: `key=` and `value=` "
        "(`key.format`, `value.format`), neither of which carries changes of its own. Client settings and the consumer "
        "group are those of the connector [`kafka`](../connector.md). It has no start, no `key.fields` and no "
        "partitioner: a read begins at the beginning, and the key chooses the partition.",
        "## Options",
        UpsertOptions.reference(),
        "## Metadata columns",
        "In the primary key there is none. Of `-U` and `-D` they are those of the record that made the row before.",
        _metadata(),
    ]
    return "\n\n".join(parts) + "\n"


def transports_page(written: str) -> str:
    """The page of the transports, with the table of what each can do put in its place.

    Args:
        written: The page as it is.
    """
    names = get_args(Transport)
    rows = [f"| | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for one in CAPABILITIES:
        answers = ("yes" if name in one.transports else f"no: {one.why}" for name in names)
        rows.append(f"| {one.doc.removesuffix('.')} | {' | '.join(answers)} |")
    return _MADE.sub(lambda _: "\n".join(rows) + "\n", written)


def script_connector_page(name: str) -> str:
    """The reference page of a connector that only scripts have, in Markdown."""
    kind = SCRIPT_CONNECTORS[name]
    parts = [
        "<!-- Made by python -m kdsl.docs from the declarations of the options; do not edit. -->",
        f"# The connector `{name}`",
        inspect.getdoc(kind) or "",
        f"It stands in [scripts](../sql-scripts.md): `WITH ('connector' = '{name}')`.",
        "## Options",
        kind.reference() if attrs.fields(kind) else "It has none.",
    ]
    if name == "datagen":
        parts += ["## Options of a column", inspect.getdoc(DatagenField) or "", DatagenField.reference("fields.#.")]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """The reference page of what ``SET`` knows, in Markdown."""
    parts = [
        "<!-- Made by python -m kdsl.docs from the declarations of the settings; do not edit. -->",
        "# Settings of a script",
        "`SET 'key' = 'value'` holds for the statements below it, `RESET 'key'` takes it back. A key that is not here "
        "is told, and ignored.",
        Settings.reference(),
    ]
    return "\n\n".join(parts) + "\n"


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Every generated page, by its place below the folder of the documentation.

    Args:
        root: That folder, for the page that is written by hand but for a table.
    """
    by_hand = root / _TRANSPORTS
    parts = {_TRANSPORTS: transports_page(by_hand.read_text(encoding="utf-8"))} if by_hand.exists() else {}
    formats = {Path("formats", f"{name}.md"): page(format_class(name)) for name in sorted(BUILT_IN)}
    return {
        Path("client-settings.md"): client_settings(),
        Path("connector.md"): connector_page(),
        Path("sql-settings.md"): settings_page(),
        Path("connectors", f"{UpsertOptions.connector}.md"): upsert_connector_page(),
        **{Path("connectors", f"{name}.md"): script_connector_page(name) for name in SCRIPT_CONNECTORS},
        Path("metrics.md"): metrics_page(),
        **formats,
        **parts,
    }


def write_pages(root: Path = ROOT) -> list[Path]:
    """Write every generated page below a folder."""
    paths = []
    for name, text in pages(root).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    for path in write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
        sys.stdout.write(f"{path}\n")
