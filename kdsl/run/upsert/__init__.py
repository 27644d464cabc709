"""Upsert tables: turns records by key into a changelog, and changelogs into upserts and tombstones.

A read has four steps. Each source task groups its rows into chunks by bucket, a number computed from the primary key
(`chunks`, `keys`). The chunks of one bucket meet in one task (`read`). There the rows are compared with the last row of
their key (`changes`), which the state of the bucket stores (`state`). The result are changes with before-images.
"""
