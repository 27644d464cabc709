"""Flink's functions of dates and times in Spark SQL.

A wall-clock time (TIMESTAMP) is never converted to an instant: Spark's ``date_trunc`` and ``date_format`` would do that
in the session's time zone, and shift the hour that the zone skips in spring.
"""

from __future__ import annotations

import re

from kdsl.flink_sql.expressions.calls import Arguments, Function, template_function
from kdsl.flink_sql.expressions.casts import cast, spark_cast, truncate_timestamp
from kdsl.flink_sql.expressions.values import INTEGERS, TypedSql
from kdsl.types import model as t
from kdsl.types.sql import literal, microseconds_between

_LTZ3, _NTZ3 = t.TimestampLtz(3), t.Timestamp(3)
_RUN = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z'\[\]{}#]")
_DATE_LETTERS = ("yyyy", "yy", "M", "MM", "MMM", "MMMM", "d", "dd", "D", "DDD", "E", "EE", "EEE", "EEEE", "a")
_TIME_LETTERS = ("H", "HH", "h", "hh", "m", "mm", "s", "ss", "S", "SS", "SSS", "SSSS", "SSSSS", "SSSSSS")
_LETTERS = frozenset([*_DATE_LETTERS, *_TIME_LETTERS])
_FIELDS = {
    "YEAR": "year({})", "QUARTER": "quarter({})", "MONTH": "month({})", "WEEK": "weekofyear({})",
    "DAY": "day({})", "DOY": "dayofyear({})", "DOW": "dayofweek({})", "ISODOW": "(weekday({}) + 1)",
    "ISOYEAR": "extract(YEAROFWEEK FROM {})",
    "DECADE": "floor(year({}) / 10)",
    "MILLISECOND": "CAST(extract(SECOND FROM {}) * 1000 AS BIGINT) % 1000",
    "HOUR": "hour({})", "MINUTE": "minute({})", "SECOND": "second({})",
}  # fmt: skip
_UNITS = {  # of TO_TIMESTAMP_LTZ: for integers, and for other numbers, whose fraction is cut to milliseconds or finer
    "0": ("timestamp_seconds({})", "timestamp_millis(CAST({} * 1000 AS BIGINT))"),
    "3": ("timestamp_millis({})", "timestamp_millis(CAST({} * 1 AS BIGINT))"),
    "6": ("timestamp_micros({})", "timestamp_micros(CAST({} * 1 AS BIGINT))"),
    "9": (
        "timestamp_micros({0} DIV 1000 - if({0} % 1000 < 0, 1, 0))",
        "timestamp_micros(CAST({} / 1000 AS BIGINT))",
    ),
}
_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_DAY, _MOMENT = "[0-9]{4}-[0-9]{2}-[0-9]{2}", " [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"
_CLOCK = ("HOUR", "MINUTE", "SECOND")
_DATES = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")


def round_time(call: Arguments, *, up: bool) -> TypedSql:
    """Translate ``FLOOR(x TO unit)``, or ``CEIL(x TO unit)`` where ``up`` is true; the type is kept."""
    unit, value = call.node.words["UNIT"], call[0]
    if value.family not in ("timestamp", "date") or value.type is None:
        call.fail(f"TO {unit} takes a DATE or a TIMESTAMP, not {value.spelling}", "CAST it")
    allowed = (*_DATES, *_CLOCK) if value.family == "timestamp" else _DATES
    if unit not in allowed:
        call.fail(f"TO {unit} cannot be translated", f"use one of {', '.join(allowed)}")
    floor = _floor_time(value.text, value.type, unit)
    if not up:
        return call.result(floor, value.type)
    step = {"QUARTER": "INTERVAL '3' MONTH"}.get(unit, f"INTERVAL '1' {unit}")
    return call.result(f"(CASE WHEN {floor} < {value.text} THEN {floor} + {step} ELSE {value.text} END)", value.type)


def _floor_time(text: str, kind: t.DataType, unit: str) -> str:
    """Write the SQL that rounds a DATE or timestamp of type ``kind`` down to a unit; weeks begin on Sunday."""
    day = text if isinstance(kind, t.Date) else f"CAST({text} AS DATE)"
    if unit in ("YEAR", "QUARTER", "MONTH"):
        day = f"trunc({day}, '{unit}')"
    if unit == "WEEK":  # from Sunday on
        day = f"date_sub({day}, dayofweek({day}) - 1)"
    if isinstance(kind, t.Date):
        return day
    if unit in _DATES:
        return spark_cast(day, kind)
    if isinstance(kind, t.TimestampLtz):
        return f"date_trunc('{unit}', {text})"
    if unit == "SECOND":
        return truncate_timestamp(text, kind, 0)
    minute = f"minute({text})" if unit == "MINUTE" else "0"
    return f"make_timestamp_ntz(year({text}), month({text}), day({text}), hour({text}), {minute}, 0)"


def _extract(call: Arguments) -> TypedSql:
    """Translate ``EXTRACT``."""
    call.require_count(1)
    unit = call.node.words["UNIT"]
    return _extract_field(call, unit, call[0])


def _field_function(unit: str) -> Function:
    """Return the translator of a function that extracts a unit, such as ``DAY``, from a date or time."""

    def translate(call: Arguments) -> TypedSql:
        call.require_count(1)
        return _extract_field(call, unit, call[0])

    return translate


def _extract_field(call: Arguments, unit: str, value: TypedSql) -> TypedSql:
    """Write the SQL that extracts a unit from a date or time as BIGINT; a DATE has the hour, minute and second 0."""
    clock = unit in (*_CLOCK, "MILLISECOND")
    fits = ("timestamp", "time") if clock else ("timestamp", "date")
    if clock and value.family == "date":
        return call.result(f"if({value.text} IS NULL, NULL, 0L)", t.BigInt())
    if value.family not in fits:
        call.fail(f"takes the {unit} of a DATE or a TIMESTAMP, not of {value.spelling}", "CAST it")
    if unit == "EPOCH":  # Flink counts the seconds of the wall clock, also for an instant
        text = spark_cast(value.text, t.Timestamp(3)) if not isinstance(value.type, t.Timestamp) else value.text
        return call.result(f"floor({microseconds_between(text)} / 1000000BD)", t.BigInt())
    if unit not in _FIELDS:
        call.fail(f"of {unit} cannot be translated", f"use one of {', '.join(_FIELDS)}")
    return call.result(f"CAST({_FIELDS[unit].format(value.text)} AS BIGINT)", t.BigInt())


def _date_pattern(call: Arguments, index: int) -> str:
    """Return the SQL of the constant date pattern that is an argument."""
    pattern = call.require_constant(index, "the pattern")
    at = 0
    while at < len(pattern):
        match = _RUN.match(pattern, at)
        if match is None or (match[1] and match[0] not in _LETTERS):
            fix = "use y, M, d, H, h, m, s, S, a, E, D, signs, and words in quotes"
            call.fail(f"cannot be translated with the pattern {pattern!r} because of {pattern[at:]!r}", fix)
        at = match.end()
    return literal(pattern)[0]


def _date_format(call: Arguments) -> TypedSql:
    """Translate ``DATE_FORMAT`` of a timestamp, or a string as ``2024-12-31 23:59:59``; other strings become NULL."""
    call.require_count(2)
    value = call[0]
    pattern = _date_pattern(call, 1)
    if value.family == "text":
        whole = cast(value, _NTZ3, trying=True).text
        value = TypedSql(f"(CASE WHEN {value.text} RLIKE '^{_DAY}{_MOMENT}$' THEN {whole} END)", _NTZ3)
    if isinstance(value.type, t.TimestampLtz):
        return call.result(f"date_format({value.text}, {pattern})", t.STRING)
    if not isinstance(value.type, t.Timestamp):
        call.fail(f"takes a TIMESTAMP, not {value.spelling}", "CAST it to TIMESTAMP(3)")
    document = f"to_json(named_struct('t', {value.text}), map('timestampNTZFormat', {pattern}))"
    return call.result(f"get_json_object({document}, '$.t')", t.STRING)


def _to_timestamp(call: Arguments, most: int = 2) -> TypedSql:
    """Translate ``TO_TIMESTAMP`` of a string to TIMESTAMP(3), NULL if it has another form; see `_date_pattern`."""
    call.require_count(1, most)
    call.require_kinds("text")
    text = call[0].text
    if len(call) == 1:
        timestamp = f"TRY_CAST({text} AS TIMESTAMP_NTZ)"
        shape = f"'^{_DAY}({_MOMENT})?$'"
        return call.result(
            f"(CASE WHEN {text} RLIKE {shape} THEN {truncate_timestamp(timestamp, _NTZ3, 3)} END)", _NTZ3, nullable=True
        )
    document = f"to_json(named_struct('t', {text}))"
    timestamp = f"from_json({document}, 't TIMESTAMP_NTZ', map('timestampNTZFormat', {_date_pattern(call, 1)})).t"
    return call.result(truncate_timestamp(timestamp, _NTZ3, 3), _NTZ3, nullable=True)


def _to_timestamp_ltz(call: Arguments) -> TypedSql:
    """Translate ``TO_TIMESTAMP_LTZ`` of a string, or of a number since 1970, by default of milliseconds.

    A BIGINT that is not in the years 1 to 9999 becomes NULL; other numbers, and nanoseconds, are not checked.
    """
    if len(call) and call[0].family == "text":
        return _parse_instant(call)
    call.require_count(1, 2)
    call.require_kinds("number", "whole")
    precision = call[1].constant if len(call) == 2 else "3"
    if precision not in _UNITS:
        call.fail(
            "takes the precision 0 (seconds), 3 (milliseconds), 6 (microseconds) or 9 (nanoseconds)",
            "write TO_TIMESTAMP_LTZ(x, 3)",
        )
    text, kind = call[0].text, t.TimestampLtz(max(3, int(precision)))
    if not isinstance(call[0].type, INTEGERS):
        return call.result(_UNITS[precision][1].format(text), kind)
    instant = _UNITS[precision][0].format(text)
    if not isinstance(call[0].type, t.BigInt) or precision == "9":
        return call.result(instant, kind)
    scale = 10 ** int(precision)
    least, most = -62_135_596_800 * scale, 253_402_300_799 * scale + scale - 1  # the years 1 to 9999
    return call.result(f"(CASE WHEN {text} BETWEEN {least}L AND {most}L THEN {instant} END)", kind, nullable=True)


def _parse_instant(call: Arguments) -> TypedSql:
    """Translate ``TO_TIMESTAMP_LTZ`` of a string: a time in UTC, or in the zone of the third argument; else NULL."""
    call.require_count(1, 3)
    call.require_kinds("text")
    wall_clock = _to_timestamp(call, most=3).text
    if len(call) == 3:
        wall_clock = f"convert_timezone({call[2].text}, 'UTC', {wall_clock})"
    return call.result(f"timestamp_micros({microseconds_between(wall_clock)})", _LTZ3, nullable=True)


def _from_unixtime(call: Arguments) -> TypedSql:
    """Translate ``FROM_UNIXTIME`` of seconds as an integer to a string, by default as ``yyyy-MM-dd HH:mm:ss``."""
    call.require_count(1, 2)
    call.require_kinds("whole", "text")
    pattern = _date_pattern(call, 1) if len(call) == 2 else "'yyyy-MM-dd HH:mm:ss'"
    return call.result(f"date_format(timestamp_seconds({call[0].text}), {pattern})", t.STRING)


def _unix_timestamp(call: Arguments) -> TypedSql:
    """Translate ``UNIX_TIMESTAMP`` of the present, or of a string and perhaps a pattern, to seconds.

    A string of another form is an error when it runs in ANSI mode.
    """
    call.require_count(0, 2)
    call.require_kinds("text")
    if not len(call):
        return TypedSql("unix_timestamp()", t.BigInt(nullable=False))
    if len(call) == 2:
        return call.result(f"unix_timestamp({call[0].text}, {_date_pattern(call, 1)})", t.BigInt())
    # the fraction of the second is ignored, as in CAST(ts AS STRING)
    return call.result(f"unix_timestamp(substring({call[0].text}, 1, 19), 'yyyy-MM-dd HH:mm:ss')", t.BigInt())


def _to_date(call: Arguments) -> TypedSql:
    """Translate ``TO_DATE`` of a string and perhaps a pattern; NULL if the string has another form."""
    call.require_count(1, 2)
    call.require_kinds("text")
    if len(call) == 1:
        return call.result(f"TRY_CAST({call[0].text} AS DATE)", t.Date(), nullable=True)
    document = f"to_json(named_struct('t', {call[0].text}))"
    date = f"from_json({document}, 't DATE', map('dateFormat', {_date_pattern(call, 1)})).t"
    return call.result(date, t.Date(), nullable=True)


def _timestampadd(call: Arguments) -> TypedSql:
    """Translate ``TIMESTAMPADD``: it keeps the type, but a DATE plus hours, minutes or seconds is a TIMESTAMP(6)."""
    call.require_count(2)
    unit = call.node.words["UNIT"]
    many, value = call.values
    if not isinstance(many.type, INTEGERS):
        call.fail(f"takes an integer number of {unit}, not {many.spelling}", "CAST it to INT")
    if value.family == "date":
        if unit in _CLOCK:
            kind = t.Timestamp(6)
            return call.result(f"timestampadd({unit}, {many.text}, {spark_cast(value.text, kind)})", kind)
        by_day = {"DAY": 1, "WEEK": 7}.get(unit)
        if by_day:
            times = "" if by_day == 1 else f" * {by_day}"
            return call.result(f"date_add({value.text}, CAST({many.text} AS INT){times})", t.Date())
        months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
        return call.result(f"add_months({value.text}, CAST({many.text} AS INT) * {months})", t.Date())
    if value.family != "timestamp" or value.type is None:
        call.fail(f"moves a DATE or a TIMESTAMP, not {value.spelling}", "CAST it")
    return call.result(f"timestampadd({unit}, {many.text}, {value.text})", value.type)


def _timestampdiff(call: Arguments) -> TypedSql:
    """Translate ``TIMESTAMPDIFF`` to the INT of whole units from the first to the second time."""
    call.require_count(2)
    unit = call.node.words["UNIT"]
    texts = []
    for value in call.values:
        if value.family not in ("date", "timestamp") or value.type is None:
            call.fail(f"takes two DATE or TIMESTAMP values, not {value.spelling}", "CAST it")
        texts.append(value.text if value.family == "timestamp" else spark_cast(value.text, t.Timestamp(3)))
    instants = [isinstance(v.type, t.TimestampLtz) for v in call.values]
    if any(instants) and not all(instants):
        call.fail("takes two wall-clock times or two instants", "CAST one to the type of the other")
    if unit in _SECONDS and not any(instants):
        cut = f"CAST({microseconds_between(texts[1], texts[0])} DIV {_SECONDS[unit] * 1_000_000}L AS INT)"
        return call.result(cut, t.Int())
    return call.result(f"CAST(timestampdiff({unit}, {texts[0]}, {texts[1]}) AS INT)", t.Int())


_NOW = template_function("date_trunc('MILLISECOND', current_timestamp())", _LTZ3, nullable=False)
_CURRENT_TIME = template_function("current_time(0)", t.Time(0), nullable=False)
_CONVERT_TZ = "substring(CAST(convert_timezone({1}, {2}, TRY_CAST({0} AS TIMESTAMP_NTZ)) AS STRING), 1, 19)"
FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "NOW", "PROCTIME", "CURRENT_ROW_TIMESTAMP"), _NOW),
    "LOCALTIMESTAMP": template_function(truncate_timestamp("localtimestamp()", _NTZ3, 3), _NTZ3, nullable=False),
    "CURRENT_DATE": template_function("current_date()", t.Date(), nullable=False),
    "CURRENT_TIME": _CURRENT_TIME,
    "LOCALTIME": _CURRENT_TIME,
    "EXTRACT": _extract,
    **{name: _field_function(name) for name in ("YEAR", "QUARTER", "MONTH", "WEEK", *_CLOCK)},
    "DAYOFYEAR": _field_function("DOY"),
    "DAYOFMONTH": _field_function("DAY"),
    "DAYOFWEEK": _field_function("DOW"),
    "DATE_FORMAT": _date_format,
    "TO_TIMESTAMP": _to_timestamp,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
    "FROM_UNIXTIME": _from_unixtime,
    "UNIX_TIMESTAMP": _unix_timestamp,
    "TO_DATE": _to_date,
    "TIMESTAMPADD": _timestampadd,
    "TIMESTAMPDIFF": _timestampdiff,
    "CONVERT_TZ": template_function(_CONVERT_TZ, t.STRING, "text", "text", "text", nullable=True),
}
