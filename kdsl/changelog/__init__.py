"""What comes after a changelog: its last change per key, and tables that it is applied to.

```python
from kdsl.changelog import Changelog, delta

Changelog(Users.read_stream(spark, cluster), Users).apply_to(delta("/lake/users"), checkpoint="/checkpoints/users")
```

A batch of changes becomes at most one change for each key (`kdsl.run.frames.last`), and this goes into the table in one
transaction, together with the number of the batch, so that a batch that comes again changes nothing. The targets stand
in `to_delta`, `to_jdbc` (with the SQL of its databases in `dialects`) and `to_memory`.
"""

from __future__ import annotations

from kdsl.changelog.changes import Changelog
from kdsl.changelog.target import Batch, ChangelogError, Target
from kdsl.changelog.to_delta import delta
from kdsl.changelog.to_jdbc import jdbc
from kdsl.changelog.to_memory import MemoryTable, memory

__all__ = ["Batch", "Changelog", "ChangelogError", "MemoryTable", "Target", "delta", "jdbc", "memory"]
