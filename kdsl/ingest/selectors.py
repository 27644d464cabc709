r"""The two kinds of patterns that select tables, as Flink CDC has them, and the names of sink tables.

In both, ``.`` separates the names of a table id, ``\.`` is any character, ``,`` separates alternatives, and the whole
id must match. The pattern of a route is one regular expression over the whole id, and its letter case counts. The
pattern of a transform or of a topic mapping has one regular expression for each name, and ignores letter case; in it,
``\,`` is a comma. Regular expressions: see `kdsl.name_patterns`. A name in back-quotes, as messages write
one with a dot, stands for itself; Flink CDC does not have that.

Source: https://nightlies.apache.org/flink/flink-cdc-docs-stable/docs/core-concept/route/ and …/transform/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import attrs

from kdsl.errors import pluralize
from kdsl.formats import TableId
from kdsl.ingest.ids import MAX_PARTS, parse_id
from kdsl.name_patterns import TOPIC_FIX, PatternError, compile_pattern

RouteMode = Literal["ALL_MATCH", "FIRST_MATCH"]
_GROUP = re.compile(r"\$(\d+)")
_QUOTED = re.compile(r"(?<!\\)`((?:[^`]|``)+)`(?!`)")
_ONLY_DOTS = re.compile(r"(?:\\\.[*+]?)+")


class SelectorError(ValueError):
    """A pattern of tables that cannot be used.

    Attributes:
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def _compile(pattern: str, written: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile a part of a pattern of tables."""
    if written.count("{") != written.count("}"):
        message = f"the part '{written}' has a '{{' without '}}': a comma separates tables"
        raise SelectorError(message, "write out repetitions such as {1,3}")
    try:
        return compile_pattern(pattern, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    except PatternError as e:
        fix = r"write one that a whole name must match, such as 'orders_\d+'" if e.fix == TOPIC_FIX else e.fix
        raise SelectorError(f"the part '{written}' {e}", fix) from None


def _swap_dots(text: str) -> str:
    r"""Turn a pattern of tables into a regular expression: ``\.`` becomes ``.``, and ``.`` becomes ``\.``."""
    return re.sub(r"\\\.|\.", lambda m: "." if m[0] == r"\." else r"\.", text)


def _unquote(text: str) -> str:
    """Replace the ASCII of names in back-quotes by its codes, which have no other meaning in a pattern."""
    return _QUOTED.sub(lambda m: re.sub("[ -~]", lambda c: f"\\x{ord(c[0]):02x}", m[1].replace("``", "`")), text)


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator that is not escaped by a backslash."""
    return re.split(rf"(?<!\\){re.escape(separator)}", text)


_ANY = _compile(".*", r"\.*", ignore_case=True)


@attrs.frozen
class RoutePattern:
    """The pattern of a route.

    Attributes:
        text: The pattern as it is written.
        regex: The regular expression that a whole id must match.
    """

    text: str
    regex: re.Pattern[str] = attrs.field(eq=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> RoutePattern:
        r"""Read a pattern: parts with commas between them, where ``.`` separates names, and ``\.`` is any character."""
        parts = [part.strip() for part in _unquote(text).split(",")]
        if not all(parts):
            raise SelectorError("the pattern of tables is empty, or ends with a comma", r"write one such as 'db.\.*'")
        for part in parts:
            _compile(_swap_dots(part), part)
        return cls(text, _compile("|".join(map(_swap_dots, parts)), text))

    def match(self, table: TableId) -> re.Match[str] | None:
        """Match the whole id of a table: its names with dots between them, without quotes. None if it does not fit."""
        return self.regex.fullmatch(".".join(table))


@attrs.frozen
class TablePattern:
    """The pattern of a transform or of a topic mapping.

    Attributes:
        text: The pattern as it is written.
        alternatives: The regular expressions of each alternative, one for each name, from the outermost in.
    """

    text: str
    alternatives: tuple[tuple[re.Pattern[str], ...], ...] = attrs.field(eq=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read a pattern: alternatives with commas between them, each of one to three names in any letter case."""
        alternatives = []
        for entry in (part.strip() for part in _split(_unquote(text), ",")):
            names = [name.strip() for name in _split(entry, ".")]
            if not all(names):
                raise SelectorError(f"the pattern of tables '{text}' has an empty name", r"write one such as 'db.\.*'")
            if len(names) > MAX_PARTS:
                raise SelectorError(
                    f"the pattern '{entry}' has {len(names)} names, and a table has at most {MAX_PARTS}",
                    r"write '\.' for any character; '.' separates names",
                )
            plain = (name.replace(r"\,", ",").replace(r"\.", ".") for name in names)
            alternatives.append(tuple(_compile(p, w, ignore_case=True) for p, w in zip(plain, names, strict=True)))
        return cls(text, tuple(alternatives))

    def fits(self, table: TableId) -> bool:
        """Whether a table is selected: its names match the last ones of an alternative, which has at least as many."""
        return any(
            len(names) >= len(table)
            and all(n.fullmatch(part) for n, part in zip(names[-len(table) :], table, strict=True))
            for names in self.alternatives
        )

    @property
    def fits_all(self) -> bool:
        """Whether every table is selected: an alternative has three names that are all ``.*``."""
        return any(len(names) == MAX_PARTS and all(n == _ANY for n in names) for names in self.alternatives)


def misread_dots(text: str) -> str | None:
    r"""The pattern that was likely meant by one such as ``\.*\.\.*``, which fits only ids of one name; or None."""
    if _ONLY_DOTS.fullmatch(text) and text.count(r"\.") > 1:
        return r"\.*.\.*"
    return None


@attrs.frozen
class RouteRule:
    """A route: which tables go into which sink table.

    Attributes:
        pattern: The upstream tables.
        sink_table: The sink table, with ``$1`` for the first group of the pattern.
        symbol: A symbol in it that stands for the upstream table's own name, or None.
        names: The names of the sink table, in which that stands, too.
    """

    pattern: RoutePattern
    sink_table: str
    symbol: str | None
    names: tuple[str, ...]

    @classmethod
    def parse(cls, source_table: str, sink_table: str, symbol: str | None = None) -> RouteRule:
        """Read a route.

        Args:
            source_table: The pattern of upstream tables.
            sink_table: The sink table, in which ``$1`` stands for a group of the pattern.
            symbol: What stands for the name of the upstream table in the sink table instead.
        """
        pattern = RoutePattern.parse(source_table)
        groups = pattern.regex.groups
        references = [int(number) for number in _GROUP.findall(sink_table)]
        if symbol == "":
            raise SelectorError("the replace-symbol is empty", "write one such as '<>', or remove it")
        if symbol is not None and references:
            raise SelectorError(
                "the route has a replace-symbol, and its sink table a group such as $1", "use one of the two"
            )
        wrong = [n for n in references if _group_number(str(n), groups) is None]
        if wrong:
            raise SelectorError(
                f"the sink table uses ${wrong[0]}, and the pattern has {pluralize(groups, 'group')}",
                "put the part of the pattern that you mean in round brackets",
            )
        try:
            names = parse_id(sink_table)
        except ValueError as e:
            raise SelectorError(str(e), "write at most three names with dots between them") from None
        if symbol is not None and not any(symbol in name for name in names):
            raise SelectorError(
                f"no name of the sink table '{sink_table}' contains the replace-symbol '{symbol}'",
                "put it into a name of the sink table, or remove replace-symbol",
            )
        return cls(pattern, sink_table, symbol, names)

    @property
    def fixed_target(self) -> TableId | None:
        """The sink table, if it is the same for all tables that the route fits; otherwise None."""
        return None if self.symbol is not None or _GROUP.search(self.sink_table) else parse_id(self.sink_table)

    def target(self, table: TableId) -> TableId | None:
        """The sink table of an upstream table; None if the route does not fit it.

        In a route with a symbol, the symbol becomes the last name of the upstream table. In one without, ``$1`` becomes
        what the first group matches: a part of a name, or several names. A dot in a name stays in it.
        """
        match = self.pattern.match(table)
        if match is None:
            return None
        if self.symbol is not None:
            target = tuple(name.replace(self.symbol, table[-1]) for name in self.names)
        else:
            target = tuple(name for template in self.names for name in _fill(template, match, table))
        if len(target) > MAX_PARTS or not all(target):
            raise ValueError(f"{'.'.join(target)!r} is not the name of a table, such as 'orders' or 'db.orders'")
        return target


def _fill(template: str, match: re.Match[str], table: TableId) -> list[str]:
    """The names that a template of one name becomes; more than one if a group matches several."""
    names = [""]
    for i, piece in enumerate(_GROUP.split(template)):
        if i % 2 == 0:
            names[-1] += piece
            continue
        length = _group_number(piece, match.re.groups)
        assert length is not None
        first, *others = _split_span(table, match.span(int(piece[:length])))
        names[-1] += first
        names += others
        names[-1] += piece[length:]  # digits that do not belong to the number
    return names


def _split_span(table: TableId, span: tuple[int, int]) -> list[str]:
    """The names, or parts of names, in a span of the names of a table, joined by dots; at least an empty one."""
    parts, start = [], 0
    for name in table:
        end = start + len(name)
        if span[0] <= end and start <= span[1]:
            parts.append(name[max(span[0] - start, 0) : span[1] - start])
        start = end + 1
    return parts if 0 <= span[0] < span[1] else [""]


def _group_number(digits: str, groups: int) -> int | None:
    """The number of digits after ``$`` that are the number of a group, as Java reads them.

    None if there is no such group.
    """
    number, length = int(digits[0]), 1
    if not 1 <= number <= groups:
        return None
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    return length


def route_table(table: TableId, rules: Iterable[RouteRule], mode: RouteMode = "ALL_MATCH") -> tuple[TableId, ...]:
    """The sink tables of an upstream table, each once; the table itself if no route fits it.

    Args:
        table: The upstream table.
        rules: The routes, in order.
        mode: Whether all routes that fit count, or only the first.
    """
    targets: list[TableId] = []
    for rule in rules:
        target = rule.target(table)
        if target is not None and target not in targets:
            targets.append(target)
        if target is not None and mode == "FIRST_MATCH":
            break
    return tuple(targets) or (table,)


@attrs.frozen
class TopicMapping:
    """Which tables are written to which topic: pairs of a pattern and a topic. The first pattern that fits counts."""

    entries: tuple[tuple[TablePattern, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> TopicMapping:
        """Read ``sel,sel:topic;sel:topic``; empty entries are left out, and the topics are not checked."""
        entries = []
        for entry in (part.strip() for part in text.split(";")):
            if not entry:
                continue
            pattern, colon, topic = entry.partition(":")
            if not colon or ":" in topic or not pattern.strip() or not topic.strip():
                raise SelectorError(
                    f"the entry '{entry}' is not a pattern of tables and a topic with one colon between them",
                    "write 'db.orders:orders;db.users,db.people:persons'",
                )
            entries.append((TablePattern.parse(pattern), topic.strip()))
        return cls(tuple(entries))

    def topic(self, table: TableId) -> str | None:
        """The topic of a table; None if no entry fits it."""
        return next((topic for pattern, topic in self.entries if pattern.fits(table)), None)
