"""What the driver asks of a cluster, whichever transport reads and writes: topics, offsets, groups, leases."""

from __future__ import annotations
