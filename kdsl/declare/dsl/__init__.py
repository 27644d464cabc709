"""Declare a table as a Python class."""

from __future__ import annotations
