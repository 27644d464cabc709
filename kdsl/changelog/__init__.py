"""Applies changelogs to tables: the last change of each key, and the targets that take it.

```python
from kdsl.changelog import Changelog, delta

Changelog(Users.read_stream(spark, cluster), Users).apply_to(delta("/lake/users"), checkpoint="/checkpoints/users")
```

A batch of changes becomes at most one change for each key (`kdsl.run.dataframes.latest`). It is written to the target
in one transaction, together with the number of the batch; therefore a replayed batch changes nothing. The targets are
in `to_delta`, `to_iceberg`, `to_jdbc` (with the SQL of its databases in `dialects`) and `to_memory`.
"""

from __future__ import annotations

from kdsl.changelog.changes import Changelog
from kdsl.changelog.target import Batch, Target, is_applied
from kdsl.changelog.to_delta import delta
from kdsl.changelog.to_iceberg import iceberg
from kdsl.changelog.to_jdbc import jdbc
from kdsl.changelog.to_memory import MemoryTable, memory
from kdsl.errors import ChangelogError

__all__ = [
    "Batch",
    "Changelog",
    "ChangelogError",
    "MemoryTable",
    "Target",
    "delta",
    "iceberg",
    "is_applied",
    "jdbc",
    "memory",
]
