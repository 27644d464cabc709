"""Rules between texts and values that the text formats share.

`numbers` and `temporal` judge one value at a time and are exact; `reading` and `writing` do the same for whole Arrow
arrays wherever a text has its plain shape, and leave the rest to them.
"""

from __future__ import annotations
