"""Rules between strings and values that the text formats share.

`reading` and `writing` do for whole Arrow arrays what `kdsl.types.strings` does for one value at a time,
wherever a string has its plain shape, and leave the rest to that.
"""

from __future__ import annotations
