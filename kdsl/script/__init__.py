"""SQL scripts run on Spark: ``CREATE TABLE``, ``INSERT INTO … SELECT`` and what else stands in them.

A script becomes a plan first (`kdsl.script.plan`), without Spark and without a broker, so that everything that is wrong
with it is told together; then the plan runs (`kdsl.script.run`).
"""

from __future__ import annotations
