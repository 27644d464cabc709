"""Why a client cannot reach a cluster or log in to it."""

from __future__ import annotations
