"""Values as Debezium and Kafka Connect write them, and the column types that they become.

`wires` defines how a column's values look on the wire, one value at a time and by whole columns, for the column's type
and the settings of a connector, which come from the format's options or a schema.
"""

from __future__ import annotations
