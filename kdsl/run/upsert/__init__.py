"""Upsert tables: turns records by key into a changelog, and changelogs into upserts and tombstones.

Rows are compared with the last row of their key (`changes`, `state_changes`), which a state stores in files
(`keyed_state`). There is one state for each topic partition, used by the task that reads the partition
(`partition_changes`); or one for each shard, a number computed from the primary key (`keys`). Then each task that reads
groups its rows into chunks by shard (`chunks`), which meet in one task (`read`, `shard_changes`). The result are
changes with before-images.
"""
