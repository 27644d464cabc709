"""Which format messages seem to have: for the error about messages that mostly do not have the declared one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from kdsl.formats import Format, Observed
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.json import Json

__all__ = ["explain_bad_batch", "suggest_format"]

_SAMPLE = 100  # messages


def suggest_format(messages: pa.BinaryArray) -> Format | None:
    """The first of the formats that reads more than half of some messages; None where none does.

    Only the first 100 messages are read, and null ones do not count. Formats of change data come before `json`, which
    reads any object; only these two kinds are tried.
    """
    sample = messages.slice(0, _SAMPLE)
    present = len(sample) - sample.null_count
    for candidate in _candidates():
        observer = candidate.observer()
        assert observer is not None
        rows = observer.observe(sample, {}).tables
        if present and 2 * (len(rows) - rows.null_count) > present:
            return candidate
    return None


def explain_bad_batch(declared: Format, messages: pa.BinaryArray, observed: Observed) -> str | None:
    """Why messages of a topic cannot be read, and which other format they seem to have, if one of those tried fits.

    None where at least half of them can be read, or all are null.

    Args:
        declared: The format that was declared.
        messages: The messages.
        observed: What its observer found in them.
    """
    present = len(messages) - messages.null_count
    if not present or 2 * len(observed.bad) <= present:
        return None
    message = (
        f"{len(observed.bad):,} of {present:,} messages cannot be read as {declared.identifier}, the first because "
        f"{observed.bad[0].reason}"
    )
    likely = suggest_format(messages)
    if likely is None or (likely.to_strings() == declared.to_strings() and likely.identifier == declared.identifier):
        return message
    return f"{message}; they look like {_describe(likely.identifier, likely.to_strings())}"


def _candidates() -> Iterator[Format]:
    """The JSON formats that are tried, in order."""
    yield DebeziumJson()
    yield DebeziumJson(schema_include=True)
    yield from (CanalJson(), MaxwellJson(), OggJson())
    yield Json(schema_include=True)
    yield Json()


def _describe(identifier: str, options: Mapping[str, str]) -> str:
    """A format with its options, as in SQL."""
    return identifier + "".join(f" with '{identifier}.{key}' = '{value}'" for key, value in options.items())
