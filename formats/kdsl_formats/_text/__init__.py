"""Conversions between strings and values that the text formats share.

`reading` and `writing` convert whole Arrow arrays as `kdsl.types.strings` converts single values, if a string has its
usual form, and leave the rest to that module.
"""

from __future__ import annotations
