"""Code that the formats with a schema registry share: the frame of messages, the options, decoding and encoding by id.

Formats of other schema languages in the same frame (Protobuf) use `framing` and `kdsl.registry`.
"""

from __future__ import annotations
