# pyarrow ships no types; whatever is asked of it is Any, to mypy and to pyright alike.
#
# pyarrow-stubs 20.0 has types, but they reject correct code: mypy then reports 917 errors in kdsl and formats. Kernels
# take no Python values beside arrays there, py_buffer no numpy arrays; pa.array of numpy integers is a BooleanArray;
# nested arrays lose their class when they are cut or filtered; and functions are missing, such as concat_batches.
from typing import Any

def __getattr__(name: str) -> Any: ...
