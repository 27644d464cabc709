"""Tables whose columns are inferred: from the newest records of a topic, or from the subjects of a schema registry.

`kafka` is the catalog, whose tables are the topics of a cluster; `declared` infers the columns that a declared table
leaves out; `inference` looks at records and subjects; `stored` keeps what was inferred with a checkpoint.
"""

from __future__ import annotations
