"""Values as Debezium and Kafka Connect write them, and the column types that they become.

`wires` defines the form of a column's values on the wire, for single values and for whole columns. It depends on the
column's type and on the settings of a connector, which come from the format's options or from a schema.
"""

from __future__ import annotations
