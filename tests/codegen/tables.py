"""Random tables, and generated modules as they are when they are imported."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
from hypothesis import strategies as st

from kdsl import Csv, DebeziumJson, Json, KafkaTable, OggJson, Raw
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import MISSING, ColumnDef, Expression, Role, TableDef, WatermarkDef
from kdsl.declare.metadata import METADATA
from kdsl.declare.row_rules import ACTIONS, RowRuleDef
from kdsl.formats import Format
from kdsl.types import model as t
from tests.strategies import NAMES, types

_NUMBER = count()
COMMENTS = (
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.just("Plain words.")
)
AWKWARD = st.sampled_from(
    [
        *("class", "None", "_x", "__x", "__init__", "user-id", "user_id", "user.id", "1st", "str", "int"),
        *("date", "time", "dt", "Annotated", "x\u00b2", "kdsl", "Named", "sql_type", "expression"),
        *("datetime", "Col", "col", "metadata", "schema", "read", "definition", "decimal", "Decimal", "list", "dict"),
        *("größe", "名前", "ﬁ", "a b", "A", "a", "name", "match", "self", "builtins", "'", '"', "\\", "`"),
        *("Any", "key"),
        "x" * 60,
        "x" * 100,
    ]
)  # fmt: skip
OPTIONS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from([("orders",), ("a", "b")]),
        "key_prefix": st.sampled_from(["", "k_"]),
        "value_fields": st.sampled_from(["ALL", "EXCEPT_KEY"]),
        "header_filter": st.sampled_from(["a:b", 'a:"c"']),
        "scan_parallelism": st.integers(1, 9),
        "check_group": st.booleans(),
        "delivery": st.sampled_from(["none", "exactly-once"]),
        "discovery": st.timedeltas(),
        "partitioner": st.sampled_from(["fixed", "package.module:function"]),
        "cdc_events_duplicate": st.booleans(),
        "changelog": st.sampled_from(["full", "net", "upsert"]),
        "changelog_state": st.sampled_from(["partition", "key"]),
        "state_location": st.sampled_from(["/mnt/states", "s3a://bucket/a b/#1"]),
        "state_ttl": st.timedeltas(timedelta(milliseconds=1)),
    },
)
STARTS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"startup": "earliest-offset"},
        {"startup": "timestamp", "startup_timestamp": 1_700_000_000_123},
        {"startup": "specific-offsets", "startup_offsets": {0: 42, 1: 300}},
        {"bounded": "latest-offset"},
        {"bounded": "timestamp", "bounded_timestamp": 0},
    ]
)
UPSERTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "buffer_rows": st.integers(0, 1000),
        "buffer_interval": st.timedeltas(),
    },
)
FORMATS: st.SearchStrategy[Format] = st.sampled_from(
    [
        *(Json(), Json(ignore_parse_errors=True, timestamp_format="ISO-8601")),
        *(Csv(field_delimiter="|"), Csv(null_literal='"'), Raw(charset="GBK")),
    ]
)  # fmt: skip
CHANGES: st.SearchStrategy[Format] = st.sampled_from([DebeziumJson(), DebeziumJson(truncate="apply"), OggJson()])
PROPERTIES = st.dictionaries(
    st.sampled_from(["group.id", "bootstrap.servers", "acks", "client.id", "a\"b'c"]),
    st.sampled_from(["x", "localhost:9092", "${env:SOME}", "ü\n"]),
)


@st.composite
def tables(
    draw: st.DrawFn, *, kinds: st.SearchStrategy[t.DataType] | None = None, upserts: bool | None = None
) -> TableDef:
    """A table of anything that a table may say, also what the resolver would refuse.

    Args:
        draw: Hypothesis' own.
        kinds: The types of its columns.
        upserts: Whether it is an upsert table; either by default.
    """
    names = draw(st.lists(NAMES | AWKWARD, unique=True, max_size=6))
    columns = [draw(_columns(name, types() if kinds is None else kinds)) for name in names]
    physical = [c.name for c in columns if c.role == "physical"]
    listed = [name for name in physical if name == name.strip() and ";" not in name]  # as 'key.fields' can hold them
    keys = draw(st.lists(st.sampled_from(listed), unique=True)) if listed else []
    primary = draw(st.lists(st.sampled_from(physical), unique=True)) if physical else []
    timed = draw(st.lists(st.sampled_from(names), unique=True, max_size=1)) if names else []
    marked = draw(st.booleans())
    messages, moments = draw(OPTIONS), draw(STARTS)
    options = KafkaOptions(**messages, **moments)
    if upserts or (upserts is None and draw(st.booleans())):
        common = {name: value for name, value in (messages | moments).items() if name not in UpsertOptions.without}
        options = UpsertOptions(**common, **draw(UPSERTS))
        marked, keys = False, []
    if isinstance(options, UpsertOptions) or options.cdc_events_duplicate:  # whose primary key may be NOT NULL
        columns = [attrs.evolve(c, default=MISSING) if c.name in primary else c for c in columns]
    return TableDef(
        draw(NAMES | AWKWARD),
        tuple(attrs.evolve(c, key=marked and c.name in keys) for c in columns),
        options=options,
        key_format=draw(st.none() | FORMATS),
        value_format=draw(st.none() | FORMATS | CHANGES),
        key_fields=None if marked else tuple(keys),
        primary_key=tuple(primary),
        watermarks=tuple(WatermarkDef(n, draw(st.sampled_from(["5 seconds", "0 s", "PT1M"]))) for n in timed),
        rules=tuple(draw(_rules(n)) for n in draw(_rule_lists(columns))),
        properties=draw(PROPERTIES),
        comment=draw(COMMENTS),
    )


def _rule_names(columns: Sequence[str]) -> st.SearchStrategy[str]:
    """Names of rules: those of columns, too."""
    usable = [name for name in columns if re.fullmatch(r"[^\W\d][\w-]*", name)]
    plain = st.sampled_from(["positive", "in-order", "expect", "col", "read", "class"])
    return plain | st.sampled_from(usable) if usable else plain


def _rule_lists(columns: Sequence[ColumnDef]) -> st.SearchStrategy[list[str]]:
    """Names of the rules of a table, in the order of a class: first those of columns, in the order of these."""
    order = {column.name: index for index, column in enumerate(columns) if column.role == "physical"}
    names = st.lists(_rule_names([column.name for column in columns]), unique=True, max_size=3)
    return names.map(lambda of: sorted(of, key=lambda name: order.get(name, len(columns))))


@st.composite
def _rules(draw: st.DrawFn, name: str) -> RowRuleDef:
    condition = draw(st.sampled_from(["a > 0", "`a b` IN ('x', \"y\")", "CHAR_LENGTH(a) <\n 3", f"a = '{'x' * 90}'"]))
    return RowRuleDef(name, condition, draw(st.sampled_from(ACTIONS)))


@st.composite
def _columns(draw: st.DrawFn, name: str, kinds: st.SearchStrategy[t.DataType]) -> ColumnDef:
    role: Role = draw(st.sampled_from(["physical", "physical", "metadata", "computed"]))
    kind, comment = draw(kinds), draw(COMMENTS)
    if role == "computed":
        text = draw(st.sampled_from(["a * 2", "CONCAT('x', \"y\")", "`a b` +\n1"]))
        return ColumnDef(name, kind, "computed", expression=Expression(text), comment=comment)
    if role == "metadata":
        key = draw(st.sampled_from([None, *METADATA, "value.source.table"]))
        kind = draw(st.just(METADATA[key].type) | st.just(kind)) if key in METADATA else kind
        return ColumnDef(name, kind, "metadata", metadata_key=key, virtual=draw(st.booleans()), comment=comment)
    default: Any = None if kind.nullable and draw(st.booleans()) else MISSING
    return ColumnDef(name, kind, default=default, comment=comment)


def module(source: str, folder: Path) -> ModuleType:
    """The module of a source."""
    path = folder / f"generated_{next(_NUMBER)}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    result = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = result
    spec.loader.exec_module(result)
    return result


def definitions(value: ModuleType) -> Sequence[TableDef]:
    """The tables that a module declares."""
    classes = [v for v in vars(value).values() if isinstance(v, type) and issubclass(v, KafkaTable)]
    return [c.definition() for c in classes if c.__module__ == value.__name__]
