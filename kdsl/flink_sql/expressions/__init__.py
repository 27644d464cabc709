"""Flink SQL expressions as typed Spark SQL: operators, casts and functions.

Everything is typed, because the same text means different things for different types (``7 / 2`` is 3 in Flink and 3.5
in Spark). What Spark evaluates differently is written in another form, or refused with its name and location.
"""

from __future__ import annotations
