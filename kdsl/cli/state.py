"""``kdsl state``: the states in which streams keep the last row of each key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
import typer

from kdsl.cli.clusters import parse_pairs
from kdsl.cli.console import out, print_json, print_text, progress
from kdsl.cli.grid import Grid
from kdsl.errors import pluralize
from kdsl.types.strings.temporal import format_instant

if TYPE_CHECKING:
    from kdsl.diagnostics.state import FoundKey, State, StateReader
    from kdsl.diagnostics.state_rows import FoundRow

app = typer.Typer(name="state", help="The last rows of keys that streams keep: show and convert.", no_args_is_help=True)

CheckpointFolder = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint of a stream.")]
Source = Annotated[
    str | None, typer.Option("--source", help="Only the source with this number, from 0 on, or this name.")
]
Hadoop = Annotated[
    list[str] | None,
    typer.Option("--hadoop", help="A setting of Hadoop, as fs.s3a.endpoint=…, for object stores; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("show")
def show(
    checkpoint: CheckpointFolder,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="A key to look up: a JSON object, or column=value, repeated for each column."),
    ] = None,
    source: Source = None,
    location: Annotated[
        str | None, typer.Option("--location", help="Where the states are, if the table declares state_location.")
    ] = None,
    hadoop: Hadoop = None,
    as_json: AsJson = False,
) -> None:
    """Print how rows are found, and the keys, rows, bytes and files of each partition or shard; or look up keys.

    Files that no batch needs are counted; later batches remove them. Works without Spark. Exits with 1 if the
    folder is not the checkpoint of a stream with a state, files of it are missing, or a key is not found, and with 2
    if --key or --hadoop is neither of its forms.
    """
    keys = _parse_keys(key)
    with progress(f"reading {checkpoint}"):
        reader = _open(checkpoint, location, hadoop)
        rows = [(one, reader.find_key(one, source)) for one in keys]
        states = [] if keys else reader.read_states(source)
    if keys:
        _print_keys(rows, as_json=as_json)
        return
    planned = reader.planned if reader.planned > reader.committed else None
    if as_json:
        batch = reader.committed if reader.committed >= 0 else None
        documents = [_write_state(state) for state in states]
        print_json({"checkpoint": reader.location, "batch": batch, "planned": planned, "sources": documents})
    else:
        committed = f"batch {reader.committed} is complete" if reader.committed >= 0 else "no batch is complete"
        print_text(f"{reader.location}: {committed}{'' if planned is None else f', batch {planned} is planned'}")
        for state in states:
            _print_state(state, reader.planned)
    if any(part.keys is None for state in states for part in state.parts):
        raise typer.Exit(1)


@app.command("convert")
def convert(
    checkpoint: CheckpointFolder,
    to: Annotated[Literal["key"], typer.Option("--to", help="How rows are found from the planned batch on.")],
    source: Source = None,
    hadoop: Hadoop = None,
    as_json: AsJson = False,
) -> None:
    """Let a stream go on that was stopped by a record of another partitioner: its batch takes the rows over by key.

    The batch that failed keeps its offsets, and runs again as a whole. A sink that had written a part of it gets that
    part again, and one that writes exactly once refuses the batch then. Only that batch's entry in Spark's
    offset log is changed. Stop the query first. Exits with 1, and changes nothing, if the folder is not
    the checkpoint of a stream with a state, rows are found by key already, no batch is planned, a query goes on with
    the checkpoint, or several sources have a state and none is named.
    """
    assert to == "key"
    with progress(f"converting {checkpoint}"):
        done = _open(checkpoint, None, hadoop).convert_to_key(source)
    if as_json:
        print_json(attrs.asdict(done))
        return
    taken = (
        f"takes over the rows of {pluralize(done.partitions, 'partition')} into" if done.partitions else "begins with"
    )
    print_text(
        f"{done.table}: batch {done.batch} {taken} {pluralize(done.shards, 'shard')}; declare changelog_state='key' "
        "(in SQL and YAML 'scan.changelog.state' = 'key') or 'auto', and start the query again"
    )


def _open(checkpoint: str, location: str | None, hadoop: list[str] | None) -> StateReader:
    """Open the states of a checkpoint."""
    from kdsl.diagnostics.state import StateReader

    settings = parse_pairs(hadoop, "--hadoop")
    named = {name.removeprefix("spark.hadoop."): value for name, value in settings.items()}
    return StateReader(checkpoint, location, named.get)


def _parse_keys(values: list[str] | None) -> list[dict[str, Any]]:
    """Read keys: each JSON object is one, and all columns with values together are another one."""
    keys: list[dict[str, Any]] = []
    pairs = []
    for value in values or ():
        if not value.lstrip().startswith("{"):
            pairs.append(value)
            continue
        try:
            keys.append(json.loads(value))
        except ValueError as e:
            raise typer.BadParameter(f"{value!r} is not a JSON object: {e}", param_hint="--key") from None
    if pairs:
        keys.append(dict(parse_pairs(pairs, "--key")))
    return keys


def _print_state(state: State, planned: int) -> None:
    """Print a state as a table, with how it finds rows above it, and what no batch needs below it."""
    how = (
        f"by key in {pluralize(state.shards, 'shard')}"
        if state.routing == "key"
        else f"by partition, which producers choose by {state.partitioner}"
    )
    print_text("")
    print_text(f"source {state.source}, {state.table}: topic {', '.join(state.topics)}; rows are found {how}")
    print_text(f"{state.location}, batch {state.batch}")
    names = (state.part, "keys", "rows", "bytes", "files", "version", "planned")
    missing = any(part.keys is None for part in state.parts)
    totals = [sum(getattr(part, name) or 0 for part in state.parts) for name in names[1:5]]
    grid = Grid(
        f"key: {', '.join(f'{name} {kind}' for name, kind in state.key)}" if state.key else "", show_footer=True
    )
    for name, total in zip(names, ("total", *(f"{total:,}" for total in totals), "", ""), strict=True):
        grid.add_column(name, total, justify="right")
    for part in state.parts:
        keys = "missing" if part.keys is None else f"{part.keys:,}"
        numbers = (f"{part.rows:,}", f"{part.bytes:,}", f"{part.files:,}")
        later = "" if part.planned is None else part.planned
        grid.add_row(part.number, keys, *numbers, part.version, later, style="red" if part.keys is None else "")
    out.print(grid)
    if state.planned:
        print_text(f"batch {planned} is planned, and takes the rows over: then they are found by {state.planned}")
    versions, files, size = (
        sum(getattr(part, name) for part in state.parts) for name in ("other_versions", "other_files", "other_bytes")
    )
    if versions or files:
        print_text(
            f"besides {pluralize(versions, 'version')} and {pluralize(files, 'file')} ({size:,} bytes) that no batch "
            "needs; later batches remove them"
        )
    if (former := state.former) is not None:
        print_text(
            f"besides the states of partitions in {former.location}, whose rows were taken over: "
            f"{pluralize(former.versions, 'version')} and {pluralize(former.files, 'file')} ({former.bytes:,} bytes); "
            "a later batch removes them, when Spark cannot repeat the one that took them over any more"
        )
    if missing:
        print_text("versions are missing: the folder was changed, or is not that of this checkpoint (--location)")


def _print_keys(rows: Sequence[tuple[Mapping[str, Any], Sequence[FoundKey]]], *, as_json: bool) -> None:
    """Print the rows of keys; exit with 1 if a key has none."""
    if as_json:
        print_json([_write_row(key, one) for key, every in rows for one in every])
    else:
        for key, every in rows:
            for one in every:
                _print_found(key, one)
    if any(all(one.last is None for one in every) for _, every in rows):
        raise typer.Exit(1)


def _print_found(key: Mapping[str, Any], one: FoundKey) -> None:
    """Print what a state has of a key."""
    text = json.dumps(key, ensure_ascii=False, default=str)
    where = "" if one.number is None else f", {one.part} {one.number}"
    if one.last is None:
        print_text(f"{text}: not in source {one.source}, {one.table}{where}")
        return
    print_text(f"{text}: source {one.source}, {one.table}{where}")
    lines = {
        "row": json.dumps(one.last.row, ensure_ascii=False, default=str),
        "deleted": "yes" if one.last.deleted else "",
        "written": _format_time(one.last) or "",
        "version": one.last.version,
        "file": one.last.file,
    }
    for name, value in lines.items():
        if value != "":
            print_text(f"  {name:<8} {value}")


def _format_time(row: FoundRow) -> str | None:
    """Format when a row was written; None if that is not stored."""
    return None if row.written is None else format_instant(row.written)


def _write_state(state: State) -> dict[str, Any]:
    """Convert a state to a JSON document."""
    document = attrs.asdict(state)
    return {**document, "key": dict(state.key), "planned": state.planned or None}


def _write_row(key: Mapping[str, Any], one: FoundKey) -> dict[str, Any]:
    """Convert what a state has of a key to a JSON document."""
    document = {"key": key, **attrs.asdict(one, filter=lambda field, _: field.name != "last")}
    if one.last is None:
        return {**document, "row": None}
    return {**document, **attrs.asdict(one.last), "written": _format_time(one.last)}
