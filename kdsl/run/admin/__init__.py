"""The admin client: the driver's requests to a cluster, for both transports."""

from __future__ import annotations
