"""What the column decoders and encoders of several formats share.

`arrays` shows Arrow arrays of strings and bytes to numpy, `varints` reads and writes numbers of variable length,
`unscaled` decimals, and `fallback` reads and writes one by one what whole columns leave out.
"""

from __future__ import annotations
