"""Random sequences of changes, and random ingestions of many of them: a function of a seed alone."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Mapping
from typing import Literal

import attrs

from tests.reliability.differential.model import DOUBLED, NUMBER, ROW_KIND, Change, Row, Rules

Sink = Literal["memory", "kafka", "delta", "postgres"]
Strategy = Literal["all-to-zero", "hash-by-key"]
Remedy = Literal["projection", "exclude alter.column.type", "ignore errors", "id BIGINT", "a STRING"]
"""What the error of a refused batch advises; a type is one of the format's fixed types."""
Wire = Literal["debezium-json", "canal-json", "json"]

SINKS: tuple[Sink, ...] = ("memory", "kafka", "postgres", "delta")
WIRES: tuple[Wire, ...] = ("debezium-json", "canal-json", "json")

LIKE_OURS = (
    *("_row_kind", "_unavailable", "__kdsl_passes", "__kdsl_time", "__kdsl_partition", "__kdsl_offset"),
    *("__kdsl_index", "__kdsl_record_topic", "__kdsl_record_partition", "__kdsl_record_offset", "__kdsl_version"),
    *("_kdsl_row_kind", "kdsl_batch", "__kdsl_rank", "__kdsl_key", "table", "records", "topic", "partition", "offset"),
    *("timestamp", "key", "value", "headers", "op", "before", "after", "source", "payload", "schema", "data", "old"),
)
"""Names that an implementation could use for columns of its own."""
ODD = (
    *("select", "from", "group", "null", "user", "order", "true", "__proto__", "`", '"', "''", "a'b", "a.b", "${x}"),
    *("${env:HOME}", "$1", "%s", "a%20b", "{}", "[0]", "a,b", "a;b", "a=b", "a\\b", "a/b", "a:b", "*", "-", "1", "1e3"),
    *("a b", " a", "a ", "a\nb", "a\tb", "\u200b", "\u202ea", "\ufeff", "\u0085", "\xa0", "\x01", "e\u0301", "é", "ß"),
    *("SS", "İ", "\u0131", "K", "\u017f", "Ω", "😀", "名前", "\u0627", "a" * 60),
)
SETTINGS = {
    "spark.sql.session.timeZone": ("UTC", "America/New_York", "Asia/Kolkata", "Europe/Amsterdam"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.shuffle.partitions": ("1", "2", "5"),
}
TABLE_FIELDS = ("of_database", "of_table")
"""The columns of plain JSON that name the table of a row."""
NEVER = "\ufdd0"
"""A character that names of columns cannot have."""
DELTA_FORBIDS = " ,;{}()\n\t="


@attrs.frozen
class Source:
    """A table with its changes.

    Attributes:
        number: Its number in its world.
        database: The first name of its id.
        name: The second name of its id.
        rules: What happens with its changes.
        changes: Its changes.
        target: The id of its sink table.
    """

    number: int
    database: str
    name: str
    rules: Rules
    changes: tuple[Change, ...]
    target: tuple[str, str]


@attrs.frozen
class Obstacle:
    """A change that no batch can have, and what to do about it.

    Attributes:
        number: The table.
        change: The change, as the message shows it.
        expected: What becomes of it when the advice is followed; None if it is left out.
        words: What the error has to name.
        columns: The columns of the projection, with their names in the sink.
        remedy: What the error advises.
    """

    number: int
    change: Change
    expected: Change | None
    words: tuple[str, ...]
    columns: Mapping[str, str] = attrs.field(factory=dict)
    remedy: Remedy = "projection"


@attrs.frozen
class World:
    """An ingestion of many tables.

    Attributes:
        seed: What it is made from.
        sink: The kind of the sink.
        wire: The format of the messages that it reads.
        sources: The tables.
        order: The numbers of the tables, in the order of their changes in the topic.
        rounds: How many of the changes are there when the ingestion starts the next time.
        limits: The most records of a batch, for each round.
        partitions: The partitions of the topic.
        by_key: Whether the changes of a table are in several partitions, by their key.
        written: The format of the messages that a sink in Kafka writes.
        partition_strategy: How a sink in Kafka chooses partitions.
        exactly_once: Whether a sink in Kafka writes in transactions.
        settings: Settings of the Spark session, which should not matter.
        broken: Whether the topic has records that cannot be read, and are left out.
        obstacle: What stops the ingestion in the end.
        processes: Whether the driver is a process of its own, and killed as a whole.
    """

    seed: str
    sink: Sink
    wire: Wire
    sources: tuple[Source, ...]
    order: tuple[int, ...]
    rounds: tuple[int, ...]
    limits: tuple[int, ...]
    partitions: int
    by_key: bool
    written: Wire
    partition_strategy: Strategy
    exactly_once: bool
    settings: Mapping[str, str]
    broken: bool = False
    obstacle: Obstacle | None = None
    processes: bool = False


def make_world(seed: str, sink: Sink, tables: int, changes: int, *, plain: bool = False) -> World:
    """An ingestion of some tables, each with up to some changes.

    A plain one has no filters, expressions and obstacles.
    """
    rng = random.Random(seed)
    wire = rng.choice(WIRES)
    written = rng.choice(WIRES)
    by_key = rng.random() < 0.5
    exactly_once = rng.random() < 0.5
    all_keyed = (sink == "kafka" and not exactly_once) or rng.random() < 0.5
    names = _Names(rng, sink)
    odd_tables = not (sink == "kafka" and written == "json")  # its messages do not have the parts of the id
    sources: list[Source] = []
    while len(sources) < tables:
        sources += _make_sources(rng, len(sources), sink, wire, names, odd_tables, by_key, all_keyed, changes, plain)
    broken = rng.random() < 0.3
    obstacle = None if plain or rng.random() < 0.3 else _make_obstacle(rng, sink, wire, len(sources), broken)
    if obstacle is not None:
        rules, named = Rules(("id",), wire == "canal-json"), _name_table(wire, "shop", f"t{len(sources)}")
        first, target = {"id": "1", **named, "a": _OBSTACLES_BEFORE}, ("shop", f"t{len(sources)}")
        sources.append(Source(len(sources), *target, rules, (Change(None, first),), target))
    order = [source.number for source in sources for _ in source.changes]
    rng.shuffle(order)
    rounds = rng.randint(1, 3)
    cuts = sorted(rng.sample(range(1, max(2, len(order))), min(rounds - 1, len(order) - 1)))
    all_keyed = all(source.rules.key for source in sources)
    strategy: Strategy = rng.choice(("all-to-zero", "hash-by-key")) if all_keyed else "all-to-zero"
    most = len(order) // rounds + 1
    return World(
        seed, sink, wire, tuple(sources), tuple(order),
        tuple(b - a for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)),
        tuple(rng.choice((most, most // 2 + 1, 1_000_000)) for _ in range(rounds)),
        rng.randint(1, 3), by_key, written, strategy, exactly_once,
        {name: rng.choice(values) for name, values in SETTINGS.items()}, broken, obstacle,
    )  # fmt: skip


_OBSTACLES_BEFORE = str(2**53 + 1)
"""The value of the column ``a`` before an obstacle: an integer that DOUBLE does not hold."""


def _make_obstacle(rng: random.Random, sink: Sink, wire: Wire, number: int, broken: bool) -> Obstacle | None:
    """A change of a table with the columns ``id`` and ``a`` that is refused; None if there is none."""
    named = _name_table(wire, "shop", f"t{number}")

    def name(column: str, *words: str) -> Obstacle:
        row = {"id": "2", **named, "a": "7", column: "1"}
        renamed = Change(None, {"id": "2", **named, "a": "7", "renamed": "1"})
        columns = {name: name for name in ("id", *named, "a")} | {column: "renamed"}
        return Obstacle(number, Change(None, row), renamed, (f"t{number}", repr(column), *words), columns)

    def leave_out(row: Row, remedy: Remedy, *words: str) -> Obstacle:
        return Obstacle(number, Change(None, {**row, **named}), None, words, {}, remedy)

    obstacles: list[Obstacle | None] = [None]
    if not broken:  # otherwise such records are left out already
        obstacles = [leave_out({"id": "2", name: "1"}, "ignore errors", "offset") for name in ("", f"x{NEVER}")]
    if wire != "canal-json":  # its fixed types are in the messages
        obstacles.append(leave_out({"id": '"two"', "a": "7"}, "id BIGINT", f"t{number}", "'id'"))
    match sink:
        case "delta":
            obstacles += [name("A", "'a'"), name("a b"), name(rng.choice(DELTA_FORBIDS))]
        case "postgres":
            obstacles += [name(rng.choice(("xmin", "ctid", "tableoid"))), name("é" * 32)]
    if sink != "kafka":
        fraction, words = Change(None, {"id": "2", **named, "a": "1.5"}), (f"t{number}", "'a'")
        nulled, spelled = (Change(None, {"id": "2", **named, "a": value}) for value in ("null", '"1.5"'))
        obstacles.append(Obstacle(number, fraction, nulled, words, {}, "exclude alter.column.type"))
        if wire != "canal-json":
            obstacles.append(Obstacle(number, fraction, spelled, words, {}, "a STRING"))
    return rng.choice(obstacles)


def make_large_world(seed: str, sink: Sink, records: int) -> World:
    """An ingestion of one table with many changes of few keys in one partition, which are read in one batch."""
    rng = random.Random(seed)
    wire = rng.choice(WIRES)
    above = rng.choice((None, 10)) if wire != "json" else None
    rules = Rules(("id",), wire == "canal-json", above)
    rows: dict[int, Row] = {}
    changes: list[Change] = []
    for number in range(records):
        key = rng.randrange(1000)
        before = None if wire == "json" else rows.get(key)
        after = {
            "id": str(key),
            **_name_table(wire, "shop", "large"),
            "n": str(number),
            NUMBER: str(rng.randrange(100)),
        }
        if before is not None and rng.random() < 0.1:
            del rows[key]
            changes.append(Change(before, None))
        else:
            rows[key] = after
            changes.append(Change(before, after))
    source = Source(0, "shop", "large", rules, tuple(changes), ("shop", "large"))
    return World(
        seed, sink, wire, (source,), (0,) * records, (records,), (10 * records,), 1, False, rng.choice(WIRES),
        rng.choice(("all-to-zero", "hash-by-key")), rng.random() < 0.5, {},
    )  # fmt: skip


def _make_sources(
    rng: random.Random,
    number: int,
    sink: Sink,
    wire: Wire,
    names: _Names,
    odd_tables: bool,
    by_key: bool,
    all_keyed: bool,
    changes: int,
    plain: bool,
) -> list[Source]:
    """The next table of a world, or several that go into one sink table."""
    keyed = wire == "json" or all_keyed or rng.random() < 0.7
    special = not plain and wire != "json" and rng.random() < 0.3
    merged = special and keyed and rng.random() < 0.3
    plain = special or not odd_tables
    key: tuple[str, ...] = ()
    if keyed:
        key = ("id",) if wire == "json" else tuple(names.columns(rng.choice((1, 1, 2))))
    rules = Rules(key, wire == "canal-json")
    if special and not merged and keyed:
        above, doubled, soft = rng.choice(
            ((50, False, False), (None, True, False), (None, True, True), (50, True, True))
        )
        rules = attrs.evolve(rules, above=above, doubled=doubled, soft_delete=soft)
    columns = _Columns(rng, sink, wire, rules, names)
    sources = []
    for shard in range(rng.randint(2, 3) if merged else 1):
        at = number + shard
        database, name = ("shop", f"t{at}") if plain else names.table()
        target = ("lake", f"merged{number}") if merged else (database, name)
        named = _name_table(wire, database, name)
        history = _History(rng, columns, rules, shard, wire, by_key, named)
        sources.append(Source(at, database, name, rules, history.changes(rng.randint(1, changes)), target))
    return sources


def _name_table(wire: Wire, database: str, name: str) -> Row:
    """The columns that name the table of a row."""
    return dict(zip(TABLE_FIELDS, map(json.dumps, (database, name)), strict=True)) if wire == "json" else {}


class _Names:
    """Names of tables and columns that a sink can have."""

    def __init__(self, rng: random.Random, sink: Sink) -> None:
        self._rng, self._sink = rng, sink
        self._tables: set[str] = set()

    def columns(self, count: int) -> list[str]:
        """Some names of columns; twins in another letter case only where the sink tells them apart."""
        names: list[str] = []
        while len(names) < count:
            name = self._any()
            twin = bool(names) and self._rng.random() < 0.15
            name = self._rng.choice(names).swapcase() if twin else name
            if self._is_column(name) and self._fold(name) not in map(
                self._fold, (*names, NUMBER, DOUBLED, ROW_KIND, "id", *TABLE_FIELDS)
            ):
                names.append(name)
        return names

    def table(self) -> tuple[str, str]:
        """The id of a table that no other one has."""
        while True:
            database, name = self._rng.choice(("shop", "Shop", self._any())), self._any()
            if self._is_table(database) and self._is_table(name) and f"{database}\0{name}".lower() not in self._tables:
                self._tables.add(f"{database}\0{name}".lower())
                return database, name

    def _fold(self, name: str) -> str:
        return name.lower() if self._sink == "delta" else name

    def _any(self) -> str:
        match self._rng.randrange(5):
            case 0:
                return self._rng.choice(LIKE_OURS)
            case 1:
                return self._rng.choice(ODD)
            case 2:
                return "".join(self._rng.choices(string.ascii_letters, k=self._rng.randint(1, 8)))
            case 3:
                return "".join(self._rng.choices("aA .`\"'$\\-_é😀", k=self._rng.randint(1, 6)))
        return "".join(random_character(self._rng) for _ in range(self._rng.randint(1, 6)))

    def _is_column(self, name: str) -> bool:
        match self._sink:
            case "postgres":
                return len(name.encode()) <= 63 and "\0" not in name
            case "delta":
                return not set(name) & set(DELTA_FORBIDS)
        return True

    def _is_table(self, name: str) -> bool:
        match self._sink:
            case "postgres":
                return len(name.encode()) <= 63 and not set(name) & set("\0.")
            case "delta":
                return not name.startswith((".", "_")) and not set(name) & set("/\\:`\0") and len(name.encode()) < 256
        return True


def random_character(rng: random.Random) -> str:
    """A character of Unicode; those of the first planes more often."""
    while True:
        code = rng.randrange(rng.choice((0x80, 0x250, 0x3000, 0x10000, 0x110000)))
        if not 0xD800 <= code < 0xE000 and chr(code) != NEVER:
            return chr(code)


def _integer(rng: random.Random) -> str:
    big = (2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
    return str(rng.choice((rng.randrange(100), rng.randrange(-(10**6), 10**6), rng.choice(big))))


def _digits(rng: random.Random) -> str:
    return str(rng.choice((rng.randrange(10**38), -rng.randrange(2**63, 10**30), rng.randrange(100))))


def _fraction(rng: random.Random) -> str:
    return repr(rng.choice((rng.random(), rng.uniform(-1e6, 1e6), 1.5, 0.1, -0.0, 1e300, 5e-324, 1e22, 123456789.125)))


def _spell_oddly(rng: random.Random) -> str:
    return rng.choice(("1.50", "1e3", "1E-2", "-1.0e+5", "0.30", "100.00"))


def _text(rng: random.Random, null: bool = True) -> str:
    odd = ("", "null", "${x}", "'", '"', "\\", "\\n", "a\nb", "\t", "''", "NaN", "1.50", "true", "é", "😀", "x" * 300)
    own = "".join(random_character(rng) for _ in range(rng.randint(1, 12)))
    text = rng.choice((rng.choice(odd), own, f"x{rng.randrange(1000)}"))
    return json.dumps(text if null else text.replace("\0", ""), ensure_ascii=rng.random() < 0.5)


def _date(rng: random.Random) -> str:
    years = (rng.randint(1900, 2100), rng.choice((1, 1582, 1883, 1970, 9999)))
    return f"{rng.choice(years):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _clock(rng: random.Random) -> str:
    digits = rng.choice((0, 0, 1, 3, 5, 6))
    fraction = f".{rng.randrange(10**digits):0{digits}}" if digits else ""
    return f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}{fraction}"


def _moment(rng: random.Random, zone: str) -> str:
    return json.dumps(f"{_date(rng)}{rng.choice(' T')}{_clock(rng)}{zone}")


def _object(rng: random.Random) -> str:
    value = rng.choice(({"a": rng.randrange(9)}, {}, [], [1, "x", None], {"id": 1, "b": {"c": [True]}}))
    return json.dumps(value, separators=(",", ":"))


Kind = Callable[[random.Random], str]
VALUES: dict[str, Kind] = {
    "small": lambda rng: str(rng.randrange(-(10**6), 10**6)),
    "integer": _integer,
    "digits": _digits,
    "fraction": _fraction,
    "boolean": lambda rng: rng.choice(("true", "false")),
    "text": _text,
    "date": lambda rng: json.dumps(_date(rng)),
    "day": lambda rng: json.dumps(_date(rng)),
    "time": lambda rng: json.dumps(_clock(rng)),
    "timestamp": lambda rng: _moment(rng, ""),
    "instant": lambda rng: _moment(rng, "Z"),
    "object": _object,
}
WIDER = {
    "small": ("integer", "fraction", "text"), "integer": ("digits", "text"), "digits": ("text",), "boolean": ("text",),
    "date": ("timestamp", "instant", "text"), "timestamp": ("instant", "day"), "instant": ("timestamp", "day"),
    "object": ("text",),
}  # fmt: skip
"""The kinds of values that a column may have later: it becomes wider, or holds them, whatever a batch has."""


class _Columns:
    """The columns of a sink table, which all tables that go into it share, and their values."""

    def __init__(self, rng: random.Random, sink: Sink, wire: Wire, rules: Rules, names: _Names) -> None:
        self._rng, self._sink = rng, sink
        others = [name for name in names.columns(rng.randint(1, 6) + len(rules.key)) if name not in rules.key]
        self.numbered = rules.above is not None or rules.doubled
        self._numbers = 0
        self.kinds = {name: rng.choice(list(VALUES)) for name in others}
        self.key_kinds = {name: rng.choice(("small", "integer", "word")) for name in rules.key}
        self.visible = set(rng.sample(others, rng.randint(1, len(others))))

    def evolve(self) -> None:
        """Add a column, or let one have values of a wider type."""
        hidden = sorted(set(self.kinds) - self.visible)
        if hidden and self._rng.random() < 0.7:
            self.visible.add(self._rng.choice(hidden))
            return
        name = self._rng.choice(sorted(self.visible))
        if wider := WIDER.get(self.kinds[name]):
            self.kinds[name] = self._rng.choice(wider)

    def key(self, shard: int) -> Row:
        """A key that only one of several tables has."""
        small, word = 10 * shard + self._rng.randrange(10), f"k{shard}{self._rng.choice('abcdeé')}"
        values = {"small": str(small), "integer": str(2**53 + small), "word": json.dumps(word)}
        return {name: values[kind] for name, kind in self.key_kinds.items()}

    def values(self, *, full: bool) -> Row:
        """The values of the other columns; some are NULL, and some are missing, if the row need not be full."""
        names = [name for name in sorted(self.visible) if full or self._rng.random() < 0.9]
        row = {name: self._value(self.kinds[name], full=full) for name in names}
        if self.numbered:
            values = [str(self._rng.randrange(100)) for _ in range(5)]
            row[NUMBER] = self._rng.choice(["null", *values] if self._numbers else values)
            self._numbers += 1
        return row

    def _value(self, kind: str, *, full: bool) -> str:
        if not full and self._rng.random() < 0.1:
            return "null"
        if kind == "text":
            return _text(self._rng, null=self._sink != "postgres")
        return VALUES[kind](self._rng)


class _History:
    """The changes of one table."""

    def __init__(
        self, rng: random.Random, columns: _Columns, rules: Rules, shard: int, wire: Wire, by_key: bool, named: Row
    ) -> None:
        self._named = named
        self._rng, self._columns, self._rules, self._shard = rng, columns, rules, shard
        self._inserts_only = wire == "json" or not rules.key
        self._moves_keys = not by_key and not rules.soft_delete
        self._rows: dict[str, Row] = {}

    def changes(self, count: int) -> tuple[Change, ...]:
        """At least that many changes."""
        result: list[Change] = []
        while len(result) < count:
            if self._rng.random() < 0.15:
                self._columns.evolve()
            result += self._next()
        return tuple(result)

    def _next(self) -> list[Change]:
        key = self._columns.key(self._shard)
        name = json.dumps(key)
        after, before = {**key, **self._named, **self._columns.values(full=not self._rows)}, self._rows.get(name)
        if self._inserts_only or before is None:
            self._rows[name] = after
            return [Change(None, after)]
        kind = self._rng.choice(("update", "update", "delete", "move"))
        if kind == "update":
            self._rows[name] = after
            return [Change(before, after)]
        del self._rows[name]
        moved = self._columns.key(self._shard)
        if kind == "delete" or json.dumps(moved) in self._rows or moved == key:
            return [Change(before, None)]
        row = {**before, **moved}
        self._rows[json.dumps(moved)] = row
        return [Change(before, row)] if self._moves_keys and self._rng.random() < 0.5 else [
            Change(before, None), Change(None, row)
        ]  # fmt: skip
