"""Code that the column decoders and encoders of several formats share.

`arrays` converts Arrow arrays of strings and bytes to numpy, `varints` reads and writes numbers of variable length,
`unscaled` decimals, and `fallback` reads and writes single messages where whole columns cannot.
"""

from __future__ import annotations
