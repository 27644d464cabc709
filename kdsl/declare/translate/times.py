"""Flink's functions of dates and times in Spark SQL.

A wall-clock time (TIMESTAMP) never becomes an instant on the way: Spark's ``date_trunc`` and ``date_format`` would make
it one in the session's zone, and shift the hour that the zone skips in spring.
"""

from __future__ import annotations

import re

from kdsl.declare.translate.calls import Arguments, Function
from kdsl.declare.translate.casts import cast, plain, truncated
from kdsl.declare.translate.values import INTEGERS, Value
from kdsl.types import model as t
from kdsl.types.sql import literal

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
_SECONDS = {"WEEK": 604_800, "DAY": 86_400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_DAY, _MOMENT = "[0-9]{4}-[0-9]{2}-[0-9]{2}", " [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"
_CLOCK = ("HOUR", "MINUTE", "SECOND")
_DATES = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")


def rounded(call: Arguments, *, up: bool) -> Value:
    """``FLOOR(x TO unit)`` and ``CEIL(x TO unit)``."""
    unit, value = call.node.words["UNIT"], call[0]
    if value.family not in ("timestamp", "date") or value.type is None:
        call.fail(f"TO {unit} takes a DATE or a TIMESTAMP, not {value.spelling}", "CAST it")
    allowed = (*_DATES, *_CLOCK) if value.family == "timestamp" else _DATES
    if unit not in allowed:
        call.fail(f"TO {unit} cannot be translated", f"use one of {', '.join(allowed)}")
    floor = _floor(value.text, value.type, unit)
    if not up:
        return call.made(floor, value.type)
    step = {"QUARTER": "INTERVAL '3' MONTH"}.get(unit, f"INTERVAL '1' {unit}")
    return call.made(f"(CASE WHEN {floor} < {value.text} THEN {floor} + {step} ELSE {value.text} END)", value.type)


def _floor(text: str, kind: t.DataType, unit: str) -> str:
    day = text if isinstance(kind, t.Date) else f"CAST({text} AS DATE)"
    if unit in ("YEAR", "QUARTER", "MONTH"):
        day = f"trunc({day}, '{unit}')"
    if unit == "WEEK":  # from Sunday on
        day = f"date_sub({day}, dayofweek({day}) - 1)"
    if isinstance(kind, t.Date):
        return day
    if unit in _DATES:
        return plain(day, kind)
    if isinstance(kind, t.TimestampLtz):
        return f"date_trunc('{unit}', {text})"
    if unit == "SECOND":
        return truncated(text, kind, 0)
    minute = f"minute({text})" if unit == "MINUTE" else "0"
    return f"make_timestamp_ntz(year({text}), month({text}), day({text}), hour({text}), {minute}, 0)"


def _extract(call: Arguments) -> Value:
    call.count(1)
    unit = call.node.words["UNIT"]
    return _field(call, unit, call[0])


def _part(unit: str) -> Function:
    def function(call: Arguments) -> Value:
        call.count(1)
        return _field(call, unit, call[0])

    return function


def _field(call: Arguments, unit: str, value: Value) -> Value:
    clock = unit in (*_CLOCK, "MILLISECOND")
    fits = ("timestamp", "time") if clock else ("timestamp", "date")
    if clock and value.family == "date":
        return call.made(f"if({value.text} IS NULL, NULL, 0L)", t.BigInt())
    if value.family not in fits:
        call.fail(f"takes the {unit} of a DATE or a TIMESTAMP, not of {value.spelling}", "CAST it")
    if unit == "EPOCH":  # of an instant, too, the reference counts the seconds of the wall clock
        text = plain(value.text, t.Timestamp(3)) if not isinstance(value.type, t.Timestamp) else value.text
        return call.made(f"floor({micros(text)} / 1000000BD)", t.BigInt())
    if unit not in _FIELDS:
        call.fail(f"of {unit} cannot be translated", f"use one of {', '.join(_FIELDS)}")
    return call.made(f"CAST({_FIELDS[unit].format(value.text)} AS BIGINT)", t.BigInt())


def micros(text: str, since: str = "TIMESTAMP_NTZ '1970-01-01 00:00:00'") -> str:
    """The microseconds from one wall-clock time to another; Spark's ``timestampdiff`` goes over the session's zone."""
    day, hour, minute, second = (f"extract({unit} FROM ({text} - {since}))" for unit in ("DAY", *_CLOCK))
    return f"(((({day} * 24L + {hour}) * 60L + {minute}) * 60000000L) + CAST({second} * 1000000 AS BIGINT))"


def _pattern(call: Arguments, index: int) -> str:
    """A pattern whose letters mean the same in both engines."""
    pattern = call.constant(index, "the pattern")
    at = 0
    while at < len(pattern):
        match = _RUN.match(pattern, at)
        if match is None or (match[1] and match[0] not in _LETTERS):
            fix = "use y, M, d, H, h, m, s, S, a, E, D, signs, and words in quotes"
            call.fail(f"has the pattern {pattern!r}, of which {pattern[at:]!r} cannot be translated", fix)
        at = match.end()
    return literal(pattern)[0]


def _date_format(call: Arguments) -> Value:
    call.count(2)
    value = call[0]
    pattern = _pattern(call, 1)
    if value.family == "text":
        whole = cast(value, _NTZ3, trying=True).text
        value = Value(f"(CASE WHEN {value.text} RLIKE '^{_DAY}{_MOMENT}$' THEN {whole} END)", _NTZ3)
    if isinstance(value.type, t.TimestampLtz):
        return call.made(f"date_format({value.text}, {pattern})", t.STRING)
    if not isinstance(value.type, t.Timestamp):
        call.fail(f"takes a TIMESTAMP, not {value.spelling}", "CAST it to TIMESTAMP(3)")
    made = f"to_json(named_struct('t', {value.text}), map('timestampNTZFormat', {pattern}))"
    return call.made(f"get_json_object({made}, '$.t')", t.STRING)


def _to_timestamp(call: Arguments, most: int = 2) -> Value:
    call.count(1, most)
    call.kinds("text")
    text = call[0].text
    if len(call) == 1:
        made = f"TRY_CAST({text} AS TIMESTAMP_NTZ)"
        shape = f"'^{_DAY}({_MOMENT})?$'"
        return call.made(f"(CASE WHEN {text} RLIKE {shape} THEN {truncated(made, _NTZ3, 3)} END)", _NTZ3, nullable=True)
    document = f"to_json(named_struct('t', {text}))"
    made = f"from_json({document}, 't TIMESTAMP_NTZ', map('timestampNTZFormat', {_pattern(call, 1)})).t"
    return call.made(truncated(made, _NTZ3, 3), _NTZ3, nullable=True)


def _to_timestamp_ltz(call: Arguments) -> Value:
    if call[0].family == "text":
        return _instant_of_text(call)
    call.count(1, 2)
    call.kinds("number", "whole")
    precision = call[1].constant if len(call) == 2 else "3"
    if precision not in ("0", "3"):
        call.fail("takes the precision 0, of seconds, or 3, of milliseconds", "write TO_TIMESTAMP_LTZ(x, 3)")
    function = "timestamp_millis" if precision == "3" else "timestamp_seconds"
    text = call[0].text
    if not isinstance(call[0].type, INTEGERS):
        whole = f"CAST({text} * {'1' if precision == '3' else '1000'} AS BIGINT)"
        return call.made(f"timestamp_millis({whole})", _LTZ3)
    if not isinstance(call[0].type, t.BigInt):
        return call.made(f"{function}({text})", _LTZ3)
    least, most = (-62_135_596_800, 253_402_300_799)
    if precision == "3":
        least, most = least * 1000, most * 1000 + 999
    return call.made(
        f"(CASE WHEN {text} BETWEEN {least}L AND {most}L THEN {function}({text}) END)", _LTZ3, nullable=True
    )


def _instant_of_text(call: Arguments) -> Value:
    """A time of UTC, or of the zone that is named."""
    call.count(1, 3)
    call.kinds("text")
    made = _to_timestamp(call, most=3).text
    if len(call) == 3:
        made = f"convert_timezone({call[2].text}, 'UTC', {made})"
    return call.made(f"timestamp_micros({micros(made)})", _LTZ3, nullable=True)


def _from_unixtime(call: Arguments) -> Value:
    call.count(1, 2)
    call.kinds("whole", "text")
    pattern = _pattern(call, 1) if len(call) == 2 else "'yyyy-MM-dd HH:mm:ss'"
    return call.made(f"date_format(timestamp_seconds({call[0].text}), {pattern})", t.STRING)


def _unix_timestamp(call: Arguments) -> Value:
    call.count(0, 2)
    call.kinds("text")
    if not len(call):
        return Value("unix_timestamp()", t.BigInt(nullable=False))
    if len(call) == 2:
        return call.made(f"unix_timestamp({call[0].text}, {_pattern(call, 1)})", t.BigInt())
    # what stands behind the seconds is left out, as in CAST(ts AS STRING)
    return call.made(f"unix_timestamp(substring({call[0].text}, 1, 19), 'yyyy-MM-dd HH:mm:ss')", t.BigInt())


def _to_date(call: Arguments) -> Value:
    call.count(1, 2)
    call.kinds("text")
    if len(call) == 1:
        return call.made(f"TRY_CAST({call[0].text} AS DATE)", t.Date(), nullable=True)
    document = f"to_json(named_struct('t', {call[0].text}))"
    made = f"from_json({document}, 't DATE', map('dateFormat', {_pattern(call, 1)})).t"
    return call.made(made, t.Date(), nullable=True)


def _timestampadd(call: Arguments) -> Value:
    call.count(2)
    unit = call.node.words["UNIT"]
    many, value = call.values
    if not isinstance(many.type, INTEGERS):
        call.fail(f"takes a whole number of {unit}, not {many.spelling}", "CAST it to INT")
    if value.family == "date":
        if unit in _CLOCK:
            kind = t.Timestamp(6)
            return call.made(f"timestampadd({unit}, {many.text}, {plain(value.text, kind)})", kind)
        by_day = {"DAY": 1, "WEEK": 7}.get(unit)
        if by_day:
            times = "" if by_day == 1 else f" * {by_day}"
            return call.made(f"date_add({value.text}, CAST({many.text} AS INT){times})", t.Date())
        months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
        return call.made(f"add_months({value.text}, CAST({many.text} AS INT) * {months})", t.Date())
    if value.family != "timestamp" or value.type is None:
        call.fail(f"moves a DATE or a TIMESTAMP, not {value.spelling}", "CAST it")
    return call.made(f"timestampadd({unit}, {many.text}, {value.text})", value.type)


def _timestampdiff(call: Arguments) -> Value:
    call.count(2)
    unit = call.node.words["UNIT"]
    texts = []
    for value in call.values:
        if value.family not in ("date", "timestamp") or value.type is None:
            call.fail(f"takes two of DATE or TIMESTAMP, not {value.spelling}", "CAST it")
        texts.append(value.text if value.family == "timestamp" else plain(value.text, t.Timestamp(3)))
    instants = [isinstance(v.type, t.TimestampLtz) for v in call.values]
    if any(instants) and not all(instants):
        call.fail("takes two wall-clock times or two instants", "CAST one to the type of the other")
    if unit in _SECONDS and not any(instants):
        cut = f"CAST({micros(texts[1], texts[0])} DIV {_SECONDS[unit] * 1_000_000}L AS INT)"
        return call.made(cut, t.Int())
    return call.made(f"CAST(timestampdiff({unit}, {texts[0]}, {texts[1]}) AS INT)", t.Int())


def _convert_tz(call: Arguments) -> Value:
    call.count(3)
    call.kinds("text")
    moved = f"convert_timezone({call[1].text}, {call[2].text}, TRY_CAST({call[0].text} AS TIMESTAMP_NTZ))"
    return call.made(f"substring(CAST({moved} AS STRING), 1, 19)", t.STRING, nullable=True)


def _now(call: Arguments) -> Value:
    call.count(0)
    return Value("date_trunc('MILLISECOND', current_timestamp())", t.TimestampLtz(3, nullable=False))


def _localtimestamp(call: Arguments) -> Value:
    call.count(0)
    return Value(truncated("localtimestamp()", _NTZ3, 3), t.Timestamp(3, nullable=False))


def _current_date(call: Arguments) -> Value:
    call.count(0)
    return Value("current_date()", t.Date(nullable=False))


def _current_time(call: Arguments) -> Value:
    call.count(0)
    return Value("current_time(0)", t.Time(0, nullable=False))


FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(("CURRENT_TIMESTAMP", "NOW", "PROCTIME", "CURRENT_ROW_TIMESTAMP"), _now),
    "LOCALTIMESTAMP": _localtimestamp,
    "CURRENT_DATE": _current_date,
    "CURRENT_TIME": _current_time,
    "LOCALTIME": _current_time,
    "EXTRACT": _extract,
    **{name: _part(name) for name in ("YEAR", "QUARTER", "MONTH", "WEEK", *_CLOCK)},
    "DAYOFYEAR": _part("DOY"),
    "DAYOFMONTH": _part("DAY"),
    "DAYOFWEEK": _part("DOW"),
    "DATE_FORMAT": _date_format,
    "TO_TIMESTAMP": _to_timestamp,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
    "FROM_UNIXTIME": _from_unixtime,
    "UNIX_TIMESTAMP": _unix_timestamp,
    "TO_DATE": _to_date,
    "TIMESTAMPADD": _timestampadd,
    "TIMESTAMPDIFF": _timestampdiff,
    "CONVERT_TZ": _convert_tz,
}
