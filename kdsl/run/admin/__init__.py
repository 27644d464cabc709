"""The admin client: what the driver asks a cluster, whichever transport reads and writes."""

from __future__ import annotations
