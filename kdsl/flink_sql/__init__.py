"""Flink SQL as a language: what declarations, statements and queries have in common, without tables.

`syntax` reads expressions and queries into trees, `expressions` translates expressions to Spark SQL, and `conditions`
evaluates conditions on Arrow batches. `kdsl.ddl` declares tables, `kdsl.scripts` translates queries and runs scripts.
"""

from __future__ import annotations
