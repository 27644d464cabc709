"""Sources and sinks as in Flink's DataStream API: fluent builders, or the same with keywords.

A builder is one more way to declare a table: it makes a `TableDef`, which the same resolver checks, and the same plans,
which the same code runs. What a table cannot express (sets of partitions, offsets of several topics, functions over
whole records, a partition for each record) is added to the plan, or to the DataFrame as Spark's own operators.
"""
