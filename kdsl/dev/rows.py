"""Sample rows of tables, whose keys repeat and match those of other tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from itertools import count, islice
from random import Random
from typing import Any

import attrs
import pyarrow as pa

from kdsl.declare.definition import TableDef
from kdsl.dev.values import Samples, is_id
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND
from kdsl.plan.model import WritePlan
from kdsl.resolve.header_filter import headers_of
from kdsl.resolve.model import Part
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type

KEYS = 20
"""How many values a column has that refers to rows of other tables, and how many rows a table with changes has."""
_NEAR = 4
_DELETE_EACH = 10
"""Every which change of a table with changes deletes a row."""

Identity = tuple[str, str]
"""A column by its name and its type: columns of several tables with the same identity have the same values."""


def identity_of(table: TableDef) -> Identity | None:
    """The column whose values number the rows of a table without changes: the first one that looks like an id."""
    if table.is_changelog:
        return None
    ids = (c for c in table.physical if is_id(c.name))
    return next(((c.name, c.type.spelling) for c in ids), None)


def reads_nulls(part: Part | None) -> bool:
    """Whether a format reads the NULLs that it writes; that of text without a word for NULL does not."""
    nullable = () if part is None else tuple(f for f in part.row.fields if f.type.nullable)
    if part is None or not nullable or part.format.needs_registry:
        return True
    row = t.Row(nullable, nullable=False)
    nulls = pa.array([dict.fromkeys(row.names)], arrow_type(row))
    try:
        return not part.format.decoder(row).decode(part.format.encoder(row).encode(nulls).messages).bad
    except KdslError:  # its messages need all columns
        return True


@attrs.frozen
class SampleRows:
    """Makes the rows of a table, endlessly, and each time the same apart from times.

    Attributes:
        table: The table.
        plan: Its write.
        samples: The values.
        identities: The columns that number the rows of tables, so that the columns of this table refer to them.
        has_nulls: Whether nullable columns are sometimes NULL.
    """

    table: TableDef
    plan: WritePlan
    samples: Samples
    identities: Collection[Identity] = ()
    has_nulls: bool = attrs.field(init=False, default=attrs.Factory(lambda self: reads_nulls(self.plan.value), True))

    def rows(self, time_of: Callable[[int], datetime], start: int = 0) -> Iterator[dict[str, Any]]:
        """Yield rows; those with changes insert, update and delete the rows of `KEYS` keys.

        Args:
            time_of: The time of a row by its index.
            start: How many rows to leave out.
        """
        if self.plan.changelog:
            yield from islice(self._changes(time_of), start, None)
        yield from (self._row(index, {}, time_of(index)) for index in count(start))

    def _changes(self, time_of: Callable[[int], datetime]) -> Iterator[dict[str, Any]]:
        """Yield changes; an update of a format with changes has its row before, and upserts have none."""
        keys = self._key_columns()
        rows: dict[int, dict[str, Any]] = {}
        for index in count():
            random = self._random(index)
            key = random.randrange(KEYS)
            if rows and index % _DELETE_EACH == _DELETE_EACH - 1:
                yield {**rows.pop(random.choice(sorted(rows))), ROW_KIND: "-D"}
                continue
            before = rows.get(key)
            rows[key] = self._row(index, dict.fromkeys(keys, key), time_of(index))
            if before is not None and self.plan.upserts is None:
                yield {**before, ROW_KIND: "-U"}
            yield {**rows[key], ROW_KIND: "+I" if before is None else "+U"}

    def _random(self, index: int) -> Random:
        return Random(f"{self.samples.seed}/{self.table.name}/{index}")  # noqa: S311

    def _key_columns(self) -> tuple[str, ...]:
        """The columns by which a table with changes finds its rows."""
        if declared := self.table.primary_key or self.table.message_key:
            return declared
        names = [c.name for c in self.table.physical]
        return tuple([name for name in names if is_id(name)][:1] or names[:1])

    def _row(self, index: int, keys: Mapping[str, int], at: datetime) -> dict[str, Any]:
        """Return a row of the written columns; ``keys`` has the numbers of values that are not chosen here."""
        random = self._random(index)
        metadata = {m.column: m.key for m in self.plan.metadata}
        row: dict[str, Any] = {}
        for field in self.plan.columns.fields:
            if field.name == ROW_KIND:
                continue
            if field.name in metadata:
                row[field.name] = self._metadata(metadata[field.name], field.type, index, at)
                continue
            number = keys.get(field.name, self._number(field, index, random))
            timed = field.name in (w.column for w in self.table.watermarks)
            is_key = timed or field.name in keys or field.name in self.table.message_key or is_id(field.name)
            may_be_null = self.has_nulls and not is_key
            row[field.name] = self.samples.value(field.name, field.type, number, at, may_be_null=may_be_null)
        return row

    def _number(self, field: t.Field, index: int, random: Random) -> int:
        """Choose which value a column has: that of the row, of one shortly before in another table, or of a few."""
        identity = (field.name, field.type.spelling)
        if identity == identity_of(self.table):
            return index
        if identity in self.identities:
            return max(0, index - random.randrange(_NEAR))
        is_key = is_id(field.name) or field.name in (*self.table.message_key, *self.table.primary_key)
        return random.randrange(KEYS) if is_key else index

    def _metadata(self, key: str, kind: t.DataType, index: int, at: datetime) -> Any:
        """Return what a metadata column writes: headers that the table's filter accepts, times, or bytes."""
        headers = {"origin": "kdsl dev"} | {c.name: c.value for c in headers_of(self.table) if not c.negated}
        match key, kind:
            case "headers", t.Map(key=name, value=value):
                return {_as(n, name): _as(v, value) for n, v in headers.items()}
            case "header-list", t.Array(element=t.Row(fields=(name, value))):
                return [{name.name: _as(n, name.type), value.name: _as(v, value.type)} for n, v in headers.items()]
            case "timestamp", t.Char() | t.VarChar():
                return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"
            case (("__raw_key__" | "__raw_value__"), _):
                return _as(f"{'key' if key == '__raw_key__' else 'value'} {index + 1}", kind)
            case _:
                return self.samples.value(key, kind, index, at, may_be_null=False)


def _as(text: str, kind: t.DataType) -> str | bytes:
    """Return a string, or its bytes if a type needs them."""
    return text.encode() if isinstance(kind, t.Binary | t.VarBinary) else text
