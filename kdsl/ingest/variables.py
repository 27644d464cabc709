"""Variables of ingestion files: ``${name}`` in a value is replaced, and ``$${`` is a literal ``${``.

References to secrets stay as they are, and so does ``$${`` in options that may have them: who resolves them reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kdsl.errors import listing, nearest
from kdsl.secrets import is_reference

_VARIABLE = re.compile(r"\$\$\{|\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def escape_variables(text: str) -> str:
    """Escape plain text, so that nothing in it is a variable; `replace_variables` of the result returns the text."""
    return text.replace("${", "$${")


def replace_variables(
    text: str, variables: Mapping[str, str], report: Callable[[str, str], None], *, is_plain: bool
) -> str:
    """Replace the variables in a value; references to secrets, and what is reported, stay as they are.

    Args:
        text: The value.
        variables: The variables by name.
        is_plain: Whether the value is plain text, in which ``$${`` becomes ``${``. It stays as it is in other values,
            which may have references.
        report: Called with the message and the fix of each ``${…}`` that is neither a variable nor a reference. The
            message does not quote what may be part of a secret.
    """

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "${" if is_plain else match[0]
        if is_reference(match[0]):
            return match[0]
        if match[1] in variables:
            return variables[match[1]]
        if _NAME.fullmatch(match[1]):
            have = f"; there are {listing(sorted(variables))}" if variables else ""
            report(
                f"there is no variable {match[1]!r}{nearest(match[1], variables)}{have}",
                f"set it with --var {match[1]}=… or in a file for --vars, in Python with variables=",
            )
        else:
            report(
                "the value between '${' and '}' is neither a variable nor a reference to a secret",
                "write ${name}, ${env:NAME}, ${file:PATH} or ${secret_values.NAME}; a literal '${' is written '$${'",
            )
        return match[0]

    return _VARIABLE.sub(replace, text)
