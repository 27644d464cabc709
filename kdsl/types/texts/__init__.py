"""Values as Java's and Flink's texts, one at a time: `numbers`, and dates and times in `temporal`."""

from __future__ import annotations
