"""Inspects clusters and topics for people: doctor, lag, peek, verify."""

from __future__ import annotations
