"""stub"""

from __future__ import annotations


class Query: ...


def translate_query(text, tables): ...
