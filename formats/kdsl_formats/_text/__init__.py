"""Rules between texts and values that the text formats share.

`reading` and `writing` do for whole Arrow arrays what `kdsl.types.texts` does for one value at a time, wherever a text
has its plain shape, and leave the rest to that.
"""

from __future__ import annotations
