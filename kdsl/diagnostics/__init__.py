"""What looks at a cluster for people: doctor, lag, peek, verify."""

from __future__ import annotations
