"""What the fast lanes of several formats stand on.

`arrays` are Arrow arrays of texts and bytes as numpy sees them, `varints` numbers of variable length in a buffer.
"""

from __future__ import annotations
