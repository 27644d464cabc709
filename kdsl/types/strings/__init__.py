"""Values as the strings that Java and Flink read and write, one at a time: `numbers`; dates and times in `temporal`."""

from __future__ import annotations
