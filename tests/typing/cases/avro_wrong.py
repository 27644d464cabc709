"""The format avro: lines that a type checker refuses."""

from __future__ import annotations

from kdsl import Avro

Avro(encoding="xml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Avro(legacy=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Avro(micros="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
