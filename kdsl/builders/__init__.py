"""Sources and sinks in the way of Flink's DataStream API: fluent builders, or the same with keywords.

A builder is one more way to declare: it makes the same `TableDef`, which the same resolver judges, and the same plans,
which the same code runs. What a table cannot say (sets of partitions, offsets of several topics, functions over whole
records, a partition for each record) stands in the plan, or goes on top as Spark's own operators.
"""
