"""Avro itself, shared by the formats ``avro`` and ``avro-confluent`` and by the code generator.

`schema` derives schemas from tables and tables from schemas; `decoder` and `encoder` convert between bodies (messages
without a header or a schema) and rows.
"""

from __future__ import annotations
