"""Flink SQL: declares tables, translates expressions and queries to Spark SQL, and runs scripts.

`syntax` reads expressions and queries into trees; `expressions` and `queries` translate the trees; `ddl` reads
statements and the tables that they declare; `scripts` plans and runs whole scripts; `load` reads files.
"""

from __future__ import annotations
