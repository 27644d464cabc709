"""Change data in JSON for tests: mostly right, in repeated and in odd shapes, some of it broken."""

from __future__ import annotations

import attrs

from kdsl.types import model as t
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules
from tests.formats.json_documents import STYLES, Style, Writer


@attrs.define
class ChangeWriter(Writer):
    """Writes messages of a dialect; `Writer` writes their rows.

    Attributes:
        schema: The schema that most messages with one have; None for any.
    """

    schema: str | None = None

    def changes(self, rules: ChangeReadingRules, count: int) -> list[bytes | None]:
        """Messages with changes."""
        r = self.random
        styles = r.sample(STYLES, r.randint(1, 2))
        extra = r.random() < 0.4
        schemas = ['{"type":"struct","fields":[1.50, {}]}', '{"é":["x", "\\u00e9"]}', "null", '"s"', "{"]
        self.schema = r.choice([None, *schemas])
        results: list[bytes | None] = []
        for _ in range(count):
            style = r.choice(styles)
            text = self.change(rules, style, extra=extra)
            results.append(self.broken(text, rules.row, style) if r.random() < self.dirt else text.encode())
        return results

    def change(self, rules: ChangeReadingRules, style: Style, *, extra: bool) -> str:
        """One message."""
        r, dialect = self.random, rules.dialect
        operation = r.choice([*dialect.inserts, dialect.update, dialect.update, dialect.delete])
        if r.random() < self.dirt / 2:
            operation = r.choice([*dialect.skipped, "t", "", operation.swapcase(), f"{operation} ", 'q"'])
        members = self._images(rules, operation, style)
        message = self.text(operation, style) if r.random() > self.dirt / 4 else self.any(style, 1)
        members.append((dialect.operation, message))
        members += [
            (name, self._member_value(rules, name, style)) for name in self._names(rules) if r.random() > self.dirt
        ]
        if extra:
            members.append(("more", self.any(style, 2)))
        if style.loose:
            members = [m for m in members if r.random() > self.dirt / 4]
            r.shuffle(members)
        if members and r.random() < self.dirt / 8:
            members.append(r.choice(members))
        text = self._object(members, style)
        if not rules.payload and r.random() > self.dirt / 8:
            return text
        schema = r.choice(['{"type":"struct","fields":[1.50, {}]}', "null", '"s"', self.any(style, 1)])
        framed = self.schema is not None and r.random() > self.dirt / 4
        if framed and self.schema is not None:
            schema = self.schema
        outer = [("schema", schema), ("payload", text if r.random() > self.dirt / 8 else self.any(style, 1))]
        if r.random() < self.dirt / 8:
            outer.append((r.choice(["payload", "schema", "z"]), self.any(style, 1)))
        return self._object(outer if framed or r.random() < 0.5 else outer[::-1], style)

    def _object(self, members: list[tuple[str, str]], style: Style) -> str:
        return f"{{{style.comma.join(f'{self.text(k, style)}{style.colon}{v}' for k, v in members)}}}"

    def _names(self, rules: ChangeReadingRules) -> list[str]:
        names = [piece.member for piece in rules.dialect.metadata.values() if not piece.beside_payload]
        return list(dict.fromkeys([*names, *(condition.member for condition in rules.include)]))

    def _member_value(self, rules: ChangeReadingRules, name: str, style: Style) -> str:
        r = self.random
        if r.random() < self.dirt:
            return self.any(style, 1)
        if name == "source":
            stamp = str(r.choice([0, 1_600_000_000_000, -1, 10**17])) if r.random() < 0.9 else '"+12"'
            parts = [("ts_ms", stamp), ("db", '"d"'), ("table", r.choice(['"t"', "null", "5"])), ("gtid", "null")]
            return self._object(parts if r.random() < 0.8 else parts[1:3], style)
        if name in ("ts_ms", "ts", "es"):
            return r.choice(["0", "1600000000123", '"17"', "null", "9223372036854775807" if self.dirt else "1"])
        if name in ("current_ts", "op_ts"):
            return r.choice(['"2020-05-13T13:39:35.766000"', '"2020-05-13 15:40:06.1"', '"2020-5-13 1:2:3"', "null"])
        kind = {p.member: p.wire_type for p in rules.dialect.metadata.values()}.get(name, t.STRING)
        return r.choice(['"a"', '"b"', '"é"']) if kind == t.STRING else self.value(kind, style)

    def _images(self, rules: ChangeReadingRules, operation: str, style: Style) -> list[tuple[str, str]]:
        r, dialect, row = self.random, rules.dialect, rules.row
        updates = operation == dialect.update
        first, second = dialect.members
        if dialect.images == "before and after":
            before = updates or operation == dialect.delete
            after = operation != dialect.delete
            wrong = r.random() < self.dirt / 4
            there = [(first, before), (second, after)]
            return [
                (
                    name,
                    self._image(row, style)
                    if shown ^ (wrong and r.random() < 0.5)
                    else r.choice(["null", self._object([], style)]),
                )
                for name, shown in there
            ]
        if dialect.images == "data and old":
            old = [(second, self._old(row, style))] if updates else [(second, "null")] if r.random() < 0.3 else []
            return [(first, self._image(row, style)), *old]
        size = r.choice([1, 1, 1, 2, 3, 0])
        more = r.choice([-1, 1]) if r.random() < self.dirt / 4 else 0
        data = style.comma.join(self._image(row, style) for _ in range(size))
        old_rows = style.comma.join(self._old(row, style) for _ in range(size + more))
        return [(first, f"[{data}]"), (second, f"[{old_rows}]" if updates else "null")]

    def _image(self, row: t.Row, style: Style) -> str:
        if self.random.random() < self.dirt / 4:
            return self.any(style, 1)
        return self.object([(f.name, f.type) for f in row.fields], style)

    def _old(self, row: t.Row, style: Style) -> str:
        if self.random.random() < self.dirt / 4:
            return self.any(style, 1)
        return self.object([(f.name, f.type) for f in row.fields if self.random.random() < 0.4], style)
