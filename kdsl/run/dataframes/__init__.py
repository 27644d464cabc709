"""DataFrames and plans: columns by name, watermarks, tasks, typed rows."""

from __future__ import annotations
