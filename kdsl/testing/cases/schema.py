"""The JSON Schema of files of cases, for editors."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_FLAG: Schema = {"enum": [True, False, "true", "false"]}
_NUMBER: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+$"}
_CONTENT: Schema = {
    "description": "Text; a mapping or a list for JSON; {$hex: 00ff} or {$base64: AP8=}; null for none."
}
_ROW: Schema = {"type": "object", "description": "A value for each column."}


def _make_object(members: Schema, *required: str) -> Schema:
    """The schema of a mapping with these members only."""
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False}


def _list(items: Schema, description: str = "") -> Schema:
    """The schema of a list."""
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def _by_name(items: Schema, description: str) -> Schema:
    """The schema of lists by the name of a table or a topic."""
    return {"type": "object", "additionalProperties": _list(items), "description": description}


def make_case_schema() -> Schema:
    """Make the JSON Schema of a file of cases."""
    message, row = {"$ref": "#/$defs/message"}, {"$ref": "#/$defs/row"}
    headers = {"type": "object", "additionalProperties": _CONTENT}
    error = _make_object({"topic": _TEXT, "partition": _NUMBER, "offset": _NUMBER, "reason": _TEXT}, "offset")
    definitions = {
        "row": _ROW,
        "message": _make_object(
            {
                "key": _CONTENT,
                "value": _CONTENT,
                "headers": {"anyOf": [headers, _list(headers)]},
                "partition": _NUMBER,
                "offset": _NUMBER,
                "timestamp": {"type": ["string", "integer"], "description": "2026-01-31T08:00:00Z, or milliseconds."},
                "topic": _TEXT,
            }
        ),
        "error": error,
    }
    fails = {"fails": _TEXT | {"description": "Text, or the code of a problem, of the error that is expected."}}
    unread = {
        "dead_letters": _list({"$ref": "#/$defs/error"}, "The records that become dead letters."),
        "errors": _list({"$ref": "#/$defs/error"}, "The records that cannot be read."),
    }
    common = {
        "name": _TEXT,
        "ordered": _FLAG | {"description": "Whether the order of rows and messages counts."},
        "time_zone": _TEXT | {"description": "The time zone of the session; UTC by default."},
    }
    by_topic = _by_name(message, "The messages by topic.")
    of_table = {
        **common,
        "columns": _list(_TEXT, "The columns to read; all by default."),
        "snapshot": _FLAG | {"description": "Whether the present rows of an upsert table are read."},
        "messages": {"anyOf": [_list(message), by_topic]},
        "rows": _list(row, "The rows to write."),
        "expect": _make_object(
            {"rows": _list(row), "messages": {"anyOf": [_list(message), by_topic]}, **unread, **fails}
        ),
    }
    by_table = _by_name(row, "The rows by table.")
    kinds = {"table": _make_object(of_table, "name")}
    for kind, more in (("script", {"messages": by_topic}), ("ingestion", {"schema_changes": _list(_TEXT)})):
        step = {"messages": by_topic, "expect": _make_object({"rows": by_table, **more, **fails})}
        kinds[kind] = _make_object({**common, **step, "steps": _list(_make_object(step))}, "name")
    reference = _make_object({"name": _TEXT, "subject": _TEXT, "version": _NUMBER}, "name", "subject", "version")
    schema = {"id": _NUMBER, "subject": _TEXT, "schema": {"type": ["string", "object", "array"]},
              "type": {"enum": ["AVRO", "JSON", "PROTOBUF"]}, "references": _list(reference)}  # fmt: skip
    members = {
        **{kind: _TEXT | {"description": f"The {kind}: a file, or the text itself."} for kind in kinds},
        "variables": {"type": "object", "description": "The variables of an ingestion."},
        "schemas": _list(_make_object(schema, "id", "subject", "schema"), "The schemas of the registry."),
        "cases": {"type": "array"},
    }
    chosen = [
        {"if": {"required": [kind]}, "then": {"properties": {"cases": _list(one)}}} for kind, one in kinds.items()
    ]
    return {
        **_make_object(members, "cases"),
        "oneOf": [{"required": [kind]} for kind in kinds],
        "allOf": chosen,
        "$defs": definitions,
    }
