"""Avro itself, which the formats ``avro`` and ``avro-confluent`` and the code generator share.

`schema` derives schemas from tables and tables from schemas; `decoder` and `encoder` turn bodies (no header, no schema
in them) into rows and back.
"""

from __future__ import annotations
