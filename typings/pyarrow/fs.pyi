# pyarrow ships no types; whatever is asked of it is Any, to mypy and to pyright alike.
from typing import Any

def __getattr__(name: str) -> Any: ...
