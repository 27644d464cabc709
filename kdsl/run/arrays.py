"""The NumPy arrays that rows are counted, chosen and named by."""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
"""Whole numbers."""
Rows = np.ndarray[Any, np.dtype[np.int64]]
"""Which rows, counted from 0."""
Flags = np.ndarray[Any, np.dtype[np.bool_]]
"""One for each row."""
