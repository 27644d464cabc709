"""Time zones by the names that Spark gives them: regions, Java's short names, and offsets from UTC.

https://spark.apache.org/docs/latest/configuration.html (spark.sql.session.timeZone)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from zoneinfo import ZoneInfo

_SHORT_NAMES: Mapping[str, str] = {
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00", "ACT": "Australia/Darwin", "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""``java.time.ZoneId.SHORT_IDS``, which Spark reads, too."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?|:(\d))?)?", re.ASCII)
_MAX_OFFSET = timedelta(hours=18)


def find_offset(zone: str) -> timedelta | None:
    """The offset from UTC that a zone always has, as ``+02:00``, ``GMT+2``, ``UTC`` and ``Z``; None for other zones."""
    text = _SHORT_NAMES.get(zone, zone)
    if text == "Z":
        return timedelta()
    match = _OFFSET.fullmatch(text) if text else None
    if match is None:
        return None
    sign, hours, minutes, seconds, minute = match.groups("0")
    offset = timedelta(hours=int(hours), minutes=int(minutes) or int(minute), seconds=int(seconds))
    return None if offset > _MAX_OFFSET else -offset if sign == "-" else offset


def region_name(zone: str) -> str:
    """The name of a zone without a fixed offset in the IANA database, as Arrow and Python read it."""
    return _SHORT_NAMES.get(zone, zone)


def is_zone(zone: str) -> bool:
    """Whether Spark reads a name as a time zone, and Python's database has it."""
    if find_offset(zone) is not None:
        return True
    try:
        ZoneInfo(region_name(zone))
    except (KeyError, ValueError, OSError):
        return False
    return True
