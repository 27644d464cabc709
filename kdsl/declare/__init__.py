"""Declare: record the facts of a table, in whichever way they are written; every way makes the same `TableDef`."""

from __future__ import annotations
