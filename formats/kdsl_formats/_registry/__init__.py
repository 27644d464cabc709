"""What the formats with a schema registry share: the frame of a message, the options, reading and writing by ids.

Formats of other schema languages in the same frame (Protobuf) build on `framing` and on `kdsl.registry`.
"""

from __future__ import annotations
