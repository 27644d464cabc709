"""PEM texts as OpenSSL reads them.

Java takes a PEM text of one line, with blanks where the line ends were, which is how it comes out of a properties file
or an environment variable; OpenSSL wants its lines.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADER = re.compile(r"\s*((?:[\w-]+:[^\r\n]*[\r\n]+)+)")


def blocks(text: str, ending: str) -> str:
    """The blocks of one sort in a PEM text, with lines of 64 characters.

    Args:
        text: A PEM text; what stands around its blocks is left out.
        ending: How the label ends: ``CERTIFICATE`` or ``PRIVATE KEY``.

    Returns:
        The blocks, or an empty text where there is none of that sort.
    """
    return "".join(_lines(label, body) for label, body in _BLOCK.findall(text) if label.endswith(ending))


def _lines(label: str, body: str) -> str:
    header = _HEADER.match(body)  # of an old encrypted key: Proc-Type, DEK-Info
    data = "".join(body[header.end() if header else 0 :].split())
    lines = [data[at : at + 64] for at in range(0, len(data), 64)]
    head = f"{header[1].strip()}\n\n" if header else ""
    return f"-----BEGIN {label}-----\n{head}{chr(10).join(lines)}\n-----END {label}-----\n"
