"""Files of declarations as text."""

from __future__ import annotations

from pathlib import Path

from kdsl.errors import Problem, ResolveError, Where


def read_text(path: str | Path, what: str, code: str) -> str:
    """The text of a file in UTF-8, without a byte order mark.

    Args:
        path: The file.
        what: What it holds, for the message.
        code: The code of the problem.

    Raises:
        ResolveError: The file is no UTF-8.
        OSError: The file cannot be read.
    """
    raw = Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        where = Where(file=str(path), line=raw.count(b"\n", 0, e.start) + 1)
        message = f"the {what} is no UTF-8: it holds the byte 0x{raw[e.start]:02x}"
        raise ResolveError(f"{path} has 1 problem", [Problem(code, message, "save it as UTF-8", where)]) from None
