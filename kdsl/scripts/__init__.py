"""SQL scripts that run on Spark: ``CREATE TABLE``, ``INSERT INTO … SELECT``, views, settings and queries.

A script is planned first (`kdsl.scripts.planner`), without Spark and without a broker, and all its problems
are reported together. Then the plan runs (`kdsl.scripts.run`).
"""

from __future__ import annotations
