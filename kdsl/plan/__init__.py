"""Plan: a resolved table as frozen, comparable, printable steps, made without a JVM or a broker."""

from __future__ import annotations
