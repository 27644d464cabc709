"""Reads files of cases, with the line of every value and all mistakes at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kdsl.documents import YamlDocument, read_text
from kdsl.errors import Problem, fail_on, file_position, listing, nearest
from kdsl.registry.model import RegisteredSchema, SchemaReference
from kdsl.testing.cases.model import (
    KINDS,
    Case,
    CaseFile,
    Content,
    Expectation,
    ExpectedError,
    Kind,
    Message,
    Registered,
    RowText,
    Step,
)
from kdsl.testing.cases.values import Unquoted, parse_bytes, write_json
from kdsl.types.strings.temporal import parse_timestamp
from kdsl.types.zones import is_zone

_FILE = (*KINDS, "variables", "schemas", "cases")
_CASE: Mapping[Kind, tuple[str, ...]] = {
    "table": ("name", "columns", "snapshot", "ordered", "time_zone", "messages", "rows", "expect"),
    "script": ("name", "ordered", "time_zone", "messages", "expect", "steps"),
    "ingestion": ("name", "ordered", "time_zone", "messages", "expect", "steps"),
}
_EXPECT: Mapping[Kind, tuple[str, ...]] = {
    "table": ("rows", "dead_letters", "errors", "fails"),
    "script": ("rows", "messages", "fails"),
    "ingestion": ("rows", "schema_changes", "fails"),
}
_EXPECT_OF_ROWS = ("messages", "fails")
_MESSAGE = ("key", "value", "headers", "timestamp")
_ERROR = ("offset", "partition", "reason", "topic")
_SCHEMA = ("id", "subject", "type", "schema", "references")
_REFERENCE = ("name", "subject", "version")
_DIGITS = 19
_NULL = "tag:yaml.org,2002:null"


def read_cases(path: Path) -> CaseFile:
    """Read a file of cases.

    Raises:
        ResolveError: It is not UTF-8 or YAML, or has unknown keys, values of a wrong type, or parts that are missing or
            do not fit together; each mistake with its line.
        OSError: The file cannot be read.
    """
    reader = _Reader(read_text(path, "document", "yaml"), str(path))
    cases = reader.read(path)
    fail_on(sorted(reader.problems, key=file_position), str(path))
    assert cases is not None  # otherwise there is a problem
    return cases


class _Reader(YamlDocument):
    def __init__(self, text: str, file: str) -> None:
        self.ends: dict[str, tuple[int, int]] = {}
        super().__init__(text, file)

    def _mapping(self, node: yaml.Node, path: str) -> dict[str, Any]:
        """Return a mapping as `YamlDocument` does, and store where it ends, unless it is written in braces."""
        if isinstance(node, yaml.MappingNode) and not node.flow_style:
            self.ends[path] = node.end_mark.line, node.start_mark.column
        return super()._mapping(node, path)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        """Return a value as the text that is written: its column or JSON says what it means, and not YAML's rules."""
        if node.tag == _NULL:
            return None
        return Unquoted(node.value) if node.style is None else node.value

    def read(self, path: Path) -> CaseFile | None:
        """Return the cases; None, with a report, without a declaration."""
        if self.problems:
            return None
        value = self.mapping(self.value, "$", _FILE, "a file of cases")
        kinds: list[Kind] = [kind for kind in KINDS if kind in value]
        if len(kinds) != 1:
            what = f"{listing(kinds)} are both declared" if kinds else "nothing is declared"
            fix = "write one of 'table: orders.py:Orders', 'script: job.sql' and 'ingestion: shop.yaml', or the text"
            self.report("$", what, fix)
            return None
        kind = kinds[0]
        target = self.text(value[kind], f"$.{kind}") or ""
        variables = self.mapping(value.get("variables", {}), "$.variables", None, "variables")
        cases = self.items(value.get("cases"), "$.cases", "cases")
        read = [self.read_case(one, f"$.cases[{i}]", kind, i) for i, one in enumerate(cases)]
        names = [case.name for case in read]
        for i, name in enumerate(names):
            if name in names[:i]:
                self.report(f"$.cases[{i}].name", f"there are two cases {name!r}", "rename one of them")
        if not cases and "cases" not in value:
            self.report("$", "there are no cases", "write 'cases:' and a list of them")
        return CaseFile(
            path,
            kind,
            target,
            self.lines[f"$.{kind}"],
            {key: self.text(text, f"$.variables.{key}") or "" for key, text in variables.items()},
            self.read_schemas(value.get("schemas", [])),
            tuple(read),
        )

    def read_schemas(self, value: Any) -> tuple[Registered, ...]:
        """Return the schemas of the registry; what is wrong with them is reported."""
        schemas = []
        for i, item in enumerate(self.items(value, "$.schemas", "schemas")):
            path = f"$.schemas[{i}]"
            one = self.mapping(item, path, _SCHEMA, "a schema", ("id", "subject", "schema"))
            schema = one.get("schema", "")
            text = schema if isinstance(schema, str) else write_json(schema)
            references = []
            for j, ref in enumerate(self.items(one.get("references", []), f"{path}.references", "references")):
                members = self.mapping(ref, f"{path}.references[{j}]", _REFERENCE, "a reference", _REFERENCE)
                version = self.integer(members.get("version", "1"), f"{path}.references[{j}].version")
                references.append(SchemaReference(str(members.get("name")), str(members.get("subject")), version or 1))
            kind = str(one.get("type", "AVRO"))
            if kind not in ("AVRO", "JSON", "PROTOBUF"):
                self.report(f"{path}.type", f"there is no type {kind!r} of schemas", "write AVRO, JSON or PROTOBUF")
            number = self.integer(one.get("id", "0"), f"{path}.id") or 0
            registered = RegisteredSchema(text, kind, tuple(references))
            schemas.append(Registered(number, str(one.get("subject", "")), registered))
        return tuple(schemas)

    def read_case(self, item: Any, path: str, kind: Kind, index: int) -> Case:
        """Return a case; what is wrong with it is reported."""
        value = self.mapping(item, path, _CASE[kind], f"a case of a {kind}", ("name",))
        columns = value.get("columns")
        steps = self.items(value["steps"], f"{path}.steps", "steps") if "steps" in value else []
        for key in ("messages", "rows", "expect") if steps else ():
            if key in value:
                self.report(f"{path}.{key}", f"{key!r} is beside 'steps'", "write it into one of the steps")
        if "steps" not in value:
            read = [self.read_step(value, path, kind)]
        else:
            allowed = ("messages", "expect")
            paths = [f"{path}.steps[{i}]" for i in range(len(steps))]
            read = [
                self.read_step(self.mapping(step, at, allowed, "a step"), at, kind)
                for step, at in zip(steps, paths, strict=True)
            ]
        zone = self.text(value.get("time_zone", "UTC"), f"{path}.time_zone") or "UTC"
        if not is_zone(zone):
            self.report(f"{path}.time_zone", f"{zone!r} is not a time zone", "write one as Europe/Berlin or +02:00")
        for step, at in zip(read[:-1], (f"{path}.steps[{i}]" for i in range(len(read))), strict=False):
            if step.expect is not None and step.expect.fails is not None:
                self.report(f"{at}.expect.fails", "steps follow one that fails", "remove them, or let it be the last")
        return Case(
            self.text(value.get("name", f"#{index}"), f"{path}.name") or "",
            tuple(read),
            None if columns is None else tuple(map(str, self.items(columns, f"{path}.columns", "columns"))),
            self.flag(value, "snapshot", path, default=False),
            self.flag(value, "ordered", path, default=kind == "table"),
            zone,
            self.where(path),
        )

    def read_step(self, value: Mapping[str, Any], path: str, kind: Kind) -> Step:
        """Return what is given in a case or a step, and what is expected."""
        if ("messages" in value) == ("rows" in value):
            what = "both 'messages' and 'rows' are given" if "rows" in value else f"a {kind} needs input"
            also = ", or 'rows:' to write" if kind == "table" else " by their topics"
            self.report(path, what, f"write 'messages:' to read{also}")
        keys = (*_MESSAGE, "partition", "offset") if kind == "table" else (*_MESSAGE, "partition")
        messages_in = self.read_messages(value.get("messages", []), f"{path}.messages", keys, named=kind != "table")
        rows = self.read_rows(value["rows"], f"{path}.rows") if "rows" in value else None
        if value.get("expect") is None:
            return Step(messages_in, rows, end=self.ends.get(path))
        at = f"{path}.expect"
        allowed = _EXPECT[kind] if rows is None else _EXPECT_OF_ROWS
        of = "messages" if rows is None else "rows"
        expect = self.mapping(value["expect"], at, allowed, f"what is expected of {of}")
        if not expect:
            self.report(at, "nothing is expected", f"write {listing(allowed)} into it")
        if "fails" in expect and len(expect) > 1:
            self.report(f"{at}.fails", "'fails' is beside other expectations", "write it into a case of its own")
        named: dict[str, tuple[RowText, ...]] = {}
        if "rows" in expect and kind == "table":
            named = {"": self.read_rows(expect["rows"], f"{at}.rows")}
        elif "rows" in expect:
            tables = self.mapping(expect["rows"], f"{at}.rows", None, "rows by table")
            named = {name: self.read_rows(some, f"{at}.rows.{name}") for name, some in tables.items()}
        messages = None
        if "messages" in expect:
            keys = (*_MESSAGE, "topic") if kind == "table" else (*_MESSAGE, "partition")
            messages = self.read_messages(expect["messages"], f"{at}.messages", keys, named=kind != "table")
        changes = expect.get("schema_changes")
        errors = [
            *self.read_errors(expect.get("dead_letters", []), f"{at}.dead_letters", letter=True),
            *self.read_errors(expect.get("errors", []), f"{at}.errors", letter=False),
        ]
        return Step(
            messages_in,
            rows,
            Expectation(
                named if "rows" in expect else None,
                messages,
                tuple(errors),
                None if changes is None else tuple(map(str, self.items(changes, f"{at}.schema_changes", "changes"))),
                self.text(expect["fails"], f"{at}.fails") if "fails" in expect else None,
            ),
        )

    def read_rows(self, value: Any, path: str) -> tuple[RowText, ...]:
        """Return rows, which are mappings by column."""
        items = self.items(value, path, "rows")
        return tuple(self.mapping(row, f"{path}[{i}]", None, "a row") for i, row in enumerate(items))

    def read_errors(self, value: Any, path: str, *, letter: bool) -> list[ExpectedError]:
        """Return records that cannot be read."""
        errors = []
        for i, item in enumerate(self.items(value, path, "records")):
            at = f"{path}[{i}]"
            one = self.mapping(item, at, _ERROR, "a record that cannot be read", ("offset",))
            offset, partition = (self.integer(one.get(key, "0"), f"{at}.{key}") or 0 for key in ("offset", "partition"))
            errors.append(
                ExpectedError(
                    offset, partition, str(one.get("reason", "")), letter, one.get("topic") and str(one["topic"])
                )
            )
        return errors

    def read_messages(
        self, value: Any, path: str, keys: Sequence[str], *, named: bool
    ) -> dict[str, tuple[Message, ...]]:
        """Return messages by topic: a mapping of topics to lists, or of a table with one topic a list."""
        if not named and not isinstance(value, dict):
            return {"": self.read_topic(value, path, keys)}
        topics = self.mapping(value, path, None, "messages by topic")
        return {topic: self.read_topic(some, f"{path}.{topic}", keys) for topic, some in topics.items()}

    def read_topic(self, value: Any, path: str, keys: Sequence[str]) -> tuple[Message, ...]:
        """Return a list of messages."""
        return tuple(
            self.read_message(one, f"{path}[{i}]", keys) for i, one in enumerate(self.items(value, path, "messages"))
        )

    def read_message(self, item: Any, path: str, keys: Sequence[str]) -> Message:
        """Return a message; what is wrong with it is reported."""
        value = self.mapping(item, path, keys, "a message")
        headers: list[tuple[str, Content]] = []
        written = value.get("headers") or {}
        for i, one in enumerate(written if isinstance(written, list) else [written]):
            at = f"{path}.headers[{i}]" if isinstance(written, list) else f"{path}.headers"
            members = self.mapping(one, at, None, "headers by name, or a list of such mappings")
            headers += [(name, self.read_content(text, f"{at}.{name}")) for name, text in members.items()]
        numbers = {
            key: None if value.get(key) is None else self.integer(value[key], f"{path}.{key}")
            for key in ("partition", "offset")
        }
        topic = value.get("topic")
        return Message(
            self.read_content(value.get("key"), f"{path}.key"),
            self.read_content(value.get("value"), f"{path}.value"),
            tuple(headers),
            timestamp=None if value.get("timestamp") is None else self.time(value["timestamp"], f"{path}.timestamp"),
            topic=None if topic is None else self.text(topic, f"{path}.topic"),
            where=self.where(path),
            **numbers,
        )

    def read_content(self, value: Any, path: str) -> Content:
        """Return a key or a value: text, bytes, or a structure that is written as JSON; perhaps with a frame."""
        frame = b""
        try:
            if isinstance(value, dict) and "$schema" in value:
                rest = dict(value)
                frame = b"\0" + (self.integer(rest.pop("$schema"), f"{path}.$schema") or 0).to_bytes(4, "big")
                value = rest["$json"] if list(rest) == ["$json"] else rest or {"$hex": None}
            if isinstance(value, list) or (
                isinstance(value, dict) and not (value and all(key.startswith("$") for key in value))
            ):
                return Content(frame + write_json(value).encode(), json=not frame)
            data = parse_bytes(value)
        except (ValueError, OverflowError) as e:
            fix = "write text, a mapping for JSON, {$hex: 00ff}, {$base64: AP8=}, or {$schema: ID, $json: …}"
            self.report(path, f"this is not the content of a message: {e}", fix)
            return Content()
        return Content(None if data is None else frame + data)

    def time(self, value: Any, path: str) -> int | None:
        """Return a timestamp in milliseconds since 1970, with a report if it cannot be read."""
        text = self.text(value, path) or ""
        if text.isascii() and text.isdigit() and len(text) < _DIGITS:
            return int(text)
        try:
            return parse_timestamp(text.replace(" ", "T", 1), "ISO-8601", zoned=True) // 1000
        except ValueError:
            now = datetime(2026, 1, 31, 8, tzinfo=UTC)
            fix = f"write {now:%Y-%m-%dT%H:%M:%SZ}, or {int(now.timestamp() * 1000)}"
            self.report(path, f"{text!r} is neither a time with a zone nor milliseconds since 1970", fix)
            return None

    def mapping(
        self, value: Any, path: str, allowed: Collection[str] | None, what: str, required: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return a mapping, with a report of other values, of unknown keys, and of required ones that it lacks."""
        if not isinstance(value, dict):
            self.report(path, f"{_kind(value)} is not {what}", "write a mapping of keys to values")
            return {}
        for key in value:
            if allowed is not None and key not in allowed:
                hint = nearest(key, allowed)
                self.report(f"{path}.{key}", f"{what} has no key {key!r}{hint}", f"the keys are {listing(allowed)}")
        for key in required:
            if value.get(key) is None:
                self.report(path, f"{what} needs {key!r}", f"add '{key}:'")
        return value

    def items(self, value: Any, path: str, what: str) -> list[Any]:
        """Return a list, with a report of other values; nothing is an empty one."""
        if value is not None and not isinstance(value, list):
            self.report(path, f"{_kind(value)} is not a list of {what}", "begin each with '- '")
            return []
        return value or []

    def text(self, value: Any, path: str) -> str | None:
        """Return text, with a report of other values."""
        if not isinstance(value, str) or not value:
            self.report(path, f"{_kind(value)} is not text", "write a single value")
            return None
        return str(value)

    def integer(self, value: Any, path: str) -> int | None:
        """Return a number from 0 on, with a report of other values, and of those that Kafka has no room for."""
        if not isinstance(value, str) or not (value.isascii() and value.isdigit()):
            self.report(path, f"{_kind(value)} is not a number from 0 on", "write digits")
            return None
        largest = 2**63 - 1 if path.endswith(".offset") else 2**31 - 1
        if len(value) > _DIGITS or int(value) > largest:
            self.report(path, f"{value} is too large", f"write at most {largest}")
            return None
        return int(value)

    def flag(self, value: Mapping[str, Any], key: str, path: str, *, default: bool) -> bool:
        """Return true or false, with a report of other values."""
        text: str | None = value.get(key, str(default).lower())
        if text not in ("true", "false"):
            self.report(f"{path}.{key}", f"{_kind(text)} is not true or false", f"write '{key}: true', or leave it out")
        return text == "true"

    def report(self, path: str, message: str, fix: str) -> None:
        """Add a problem at a path of the document."""
        self.problems.append(Problem("document", message, fix, self.where(path)))


def _kind(value: Any) -> str:
    """Describe a value for a message."""
    if isinstance(value, str):
        return repr(str(value))
    return "nothing" if value is None else "a mapping" if isinstance(value, dict) else "a list"
