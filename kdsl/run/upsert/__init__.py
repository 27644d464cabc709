"""Upsert tables: records by key become a changelog, and changelogs become upserts and tombstones.

A read goes in four steps. Each source task packs its rows by bucket, a number made of the primary key (`packets`,
`hashing`). Packets of one bucket meet in one task (`read`). There the rows are compared with the last row of their key
(`changes`), which is kept in the state of the bucket (`state`). What comes out are changes with before-images.
"""
