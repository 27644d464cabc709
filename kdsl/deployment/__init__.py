"""What declarations need of clusters, registries and sinks: how that differs from what is live, and its creation."""

from __future__ import annotations
