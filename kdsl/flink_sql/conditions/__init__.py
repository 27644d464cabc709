"""Conditions of Flink SQL evaluated on Arrow batches, with exactly the results of their translation to Spark SQL.

A condition is checked and typed by `kdsl.flink_sql.expressions`, so it means here what it means in a computed column or
a query. `compiler` turns its tree into functions of Arrow arrays; what Arrow cannot compute with exactly Spark's result
is refused by name. `values` are evaluated columns, `casts`, `operators` and `functions` compute them, and `patterns`
matches strings.
"""

from __future__ import annotations
