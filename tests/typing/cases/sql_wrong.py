"""What type checkers must refuse of tables from SQL."""

from __future__ import annotations

from pathlib import Path

import kdsl

PATH = Path("tables.sql")

kdsl.sql(PATH)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
kdsl.sql()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
kdsl.load_sql(b"tables.sql")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
kdsl.sql("CREATE TABLE t (a INT)").raed()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
