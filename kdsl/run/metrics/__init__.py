"""Metrics of streams: counted in the tasks, carried to the driver, folded into one snapshot for each query."""

from __future__ import annotations
