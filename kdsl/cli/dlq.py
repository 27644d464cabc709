"""``kdsl dlq``: the dead letters of a topic."""

from __future__ import annotations

import sys
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer

from kdsl.callbacks import import_function
from kdsl.cli.clusters import cluster_from_options, parse_pairs, require_brokers, with_cluster
from kdsl.cli.console import display_bytes, err, out, print_json, print_text, progress
from kdsl.cli.grid import Grid
from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import (
    DeadLetter,
    Selection,
    count_letters,
    find_letter,
    read_letters,
    time_text,
)
from kdsl.diagnostics.replay import MAX_ATTEMPTS, replay as send_again
from kdsl.errors import decode_text, pluralize

app = typer.Typer(name="dlq", help="Dead letters: list, count, show, and replay them.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="The topic of the dead letters.")]
OfTable = Annotated[str | None, typer.Option("--table", help="Only letters of this table.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only letters that contain a string: reason=…, side=…, column=…; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_MEANING = {
    "sent": "sent and acknowledged",
    "done": "sent by an earlier replay",
    "dropped": "dropped by the function",
    "exhausted": "left: rejected as often as --max-attempts says",
    "truncated": "left: with incomplete values",
    "outdated": "left: their key has a later record (--force sends them)",
    "keyless": "left: without a key, by which later records could be searched (--force sends them)",
    "unverified": "left: later records with their key may have been compacted or deleted (--force sends them)",
    "recreated": "left: their topic is gone, or was created again (name it with --to)",
    "unknown": "left: an interrupted replay may have sent them, and the target cannot show it (--resend-unknown)",
    "unselected": "not selected",
    "repeated": "further letters of the same records",
    "overtaken": "of the sent ones are now after a newer record with their key, written at the same time (see the log)",
}
_LATE_ROWS = "logs and counts them (numLateRecordsDropped of kdsl.metrics and kdsl run --report)"
"""Where the rows are seen that a query drops because they are late."""
_LEFT = 3
"""The exit code if selected records were left."""


@app.command("list")
@with_cluster(registry=False)
def list_letters(
    topic: Topic,
    cluster: Cluster | None = None,
    table: OfTable = None,
    where: Where = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many letters, the first ones.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Print the first letters of a topic: which record, which table, why.

    Exits with 1 if the topic cannot be read or --where names no part of a letter, and with 2 if it
    is not key=value or no brokers are named.
    """
    chosen = Selection(table, parse_pairs(where, "--where"))
    with progress(f"reading {topic}"):
        matching = (letter for letter in read_letters(require_brokers(cluster), topic) if chosen.matches(letter))
        letters = list(islice(matching, count))
    if as_json:
        print_json([_document(letter) for letter in letters])
        return
    if _explain_none(topic, chosen, {(letter.table, letter.side, letter.reason) for letter in letters}):
        return
    names = ("id", "table", "side", "column", "attempts", "at", "bytes", "reason")
    grid = Grid(f"{topic}: {pluralize(len(letters), 'letter')}", names, right=("attempts", "bytes"))
    for letter in letters:
        size = len(letter.key or b"") + (letter.truncated or len(letter.value or b""))
        cells = (letter.id, letter.table, letter.side, letter.column or "", letter.attempts, letter.at, size)
        grid.add_row(*cells, letter.reason)
    out.print(grid)


@app.command("count")
@with_cluster(registry=False)
def count(
    topic: Topic,
    cluster: Cluster | None = None,
    table: OfTable = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Count the rejected records by table, side and reason; several letters of one record count once.

    Exits with 1 if the topic cannot be read or --where names no part of a letter, and with 2 if no brokers are named.
    """
    chosen = Selection(table, parse_pairs(where, "--where"))
    with progress(f"reading {topic}"):
        counts = count_letters(
            letter for letter in read_letters(require_brokers(cluster), topic) if chosen.matches(letter)
        )
    if as_json:
        names = ("table", "side", "reason")
        print_json([{**dict(zip(names, key, strict=True)), "records": number} for key, number in counts.items()])
        return
    if _explain_none(topic, chosen, counts.keys()):
        return
    title = f"{topic}: {pluralize(sum(counts.values()), 'record')}"
    grid = Grid(title, ("records", "table", "side", "reason"), right=("records",))
    for key, number in counts.items():
        grid.add_row(f"{number:,}", *key)
    out.print(grid)


@app.command("show")
@with_cluster(registry=False)
def show(
    topic: Topic,
    record: Annotated[str, typer.Argument(metavar="ID", help="The id of the record, or topic-partition-offset.")],
    cluster: Cluster | None = None,
    as_json: AsJson = False,
) -> None:
    """Print the newest letter of a record with its key, value and headers, which are data of the record.

    Long ones are shortened, except with --json. Exits with 1 if there is no letter or the topic cannot be read, and
    with 2 if no brokers are named.
    """
    with progress(f"reading {topic}"):
        letter = find_letter(require_brokers(cluster), topic, record)
    if as_json:
        print_json({**_document(letter), **_contents(letter)})
        return
    for name, value in _document(letter).items():
        if value not in (None, ""):
            print_text(f"{name:<10} {value}")
    for name, value in letter.headers:
        print_text(f"{'header':<10} {name} = {display_bytes(value)}")
    for name, value in (("key", letter.key), ("value", letter.value)):
        print_text(f"{name:<10} {display_bytes(value)}")


@app.command("replay")
@with_cluster(registry=False)
def replay(
    topic: Topic,
    to: Annotated[str, typer.Option("--to", help="original: the topic of each record; or a topic.")],
    cluster: Cluster | None = None,
    table: OfTable = None,
    where: Where = None,
    function: Annotated[
        str | None,
        typer.Option("--with", help="A function as module:name, which returns the record to send, or None to drop it."),
    ] = None,
    max_attempts: Annotated[
        int, typer.Option("--max-attempts", min=1, help="Leave records that were rejected as often.")
    ] = MAX_ATTEMPTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Send nothing, and count what would be sent.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Send also records whose key has a later record, or may have, or is NULL."),
    ] = False,
    resend_unknown: Annotated[
        bool,
        typer.Option("--resend-unknown", help="Send also what an interrupted replay may have sent: perhaps twice."),
    ] = False,
    to_bootstrap: Annotated[
        str | None, typer.Option("--to-bootstrap", help="The brokers of the records, if they are others.")
    ] = None,
    to_properties: Annotated[
        list[str] | None, typer.Option("--to-property", help="A client setting for those brokers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send the records again: appended to their topic or another, unchanged or mapped by a function.

    Each record is sent to a topic once, however often and with whatever selection this is repeated. The module of a
    function is imported, also from the current folder. Exits with 0 if every selected record was sent, now or earlier,
    or dropped by the function; with 3 if selected records are left or overtaken; with 1 if it fails, also because
    another replay of these letters is running; and with 2 if no brokers are named.
    """
    chosen = Selection(table, parse_pairs(where, "--where"))
    target = cluster_from_options(to_bootstrap, properties=to_properties)
    if function is not None and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    change = None if function is None else import_function(function)
    with progress(f"replaying {topic}"):
        done = send_again(
            require_brokers(cluster),
            topic,
            to,
            target=target,
            selection=chosen,
            change=change,
            max_attempts=max_attempts,
            force=force,
            dry_run=dry_run,
            resend_unknown=resend_unknown,
        )
    counts = attrs.asdict(done)
    if as_json:
        print_json({**counts, "dry_run": dry_run})
    else:
        for name, meaning in _MEANING.items():
            if counts[name] or name == "sent":
                meaning = "would be sent" if dry_run and name == "sent" else meaning
                out.print(f"{counts[name]:>9,}  {meaning}", highlight=False)
    if done.late:
        err.print(
            f"warning: {done.late:,} of the sent records are older than the watermark of their table allows; a query "
            "that has read the newest records drops their rows where they are late, as in windows, joins and "
            f"deduplication by event time, and {_LATE_ROWS}: read them with a query of its own, or start it anew from "
            "the beginning",
            highlight=False,
            soft_wrap=True,
        )
    elif done.sent and not as_json:
        err.print(
            "note: a query with a watermark of its own drops the rows of the sent records where they are late, and "
            f"{_LATE_ROWS}",
            highlight=False,
            soft_wrap=True,
        )
    raise typer.Exit(0 if done.is_complete else _LEFT)


def _explain_none(topic: str, chosen: Selection, kinds: Collection[tuple[str, str, str]]) -> bool:
    """Print that there are no letters to show, if so: only records without a table, a side and a reason, or none."""
    if any(map(any, kinds)):
        return False
    if kinds:
        print_text(
            f"{topic} is not a topic of dead letters: its records have none of the headers of a letter; kdsl peek "
            f"{topic} shows them, and kdsl plan TABLE where the letters of a table are"
        )
    elif chosen == Selection():
        print_text(f"{topic} has no letters: no record was rejected, or Kafka has deleted them")
    else:
        print_text(f"{topic} has no such letters; kdsl dlq count {topic} shows which it has")
    return True


def _document(letter: DeadLetter) -> dict[str, Any]:
    """A letter for JSON, without key, value and headers of its record."""
    names = ("id", "topic", "partition", "offset", "table", "side", "column", "reason", "attempts", "at", "truncated")
    return {**{name: getattr(letter, name) for name in names}, "timestamp": time_text(letter.timestamp)}


def _contents(letter: DeadLetter) -> dict[str, Any]:
    """Return the data of a letter's record, for JSON: headers, key and value as `decode_text` returns them."""
    headers = [[name, decode_text(value)] for name, value in letter.headers]
    return {"headers": headers, "key": decode_text(letter.key), "value": decode_text(letter.value)}
