"""The partitions and offsets that a read starts and stops at, and the offsets that a checkpoint stores."""

from __future__ import annotations
