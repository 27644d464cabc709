"""The data source ``kdsl`` for Spark, which looks for it in each module ``pyspark_…`` of its Python path.

With kdsl installed, ``spark.readStream.format("kdsl")`` needs no registration, in Python, SQL and Scala.
"""

from __future__ import annotations

from kdsl.data_source.source import DefaultSource

__all__ = ["DefaultSource"]
