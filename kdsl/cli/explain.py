"""``kdsl explain``: what the code of a problem or the class of an error means."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.columns import Columns
from rich.markdown import Markdown

from kdsl.cli.console import out, print_text
from kdsl.explanations import AREAS, explain as explain_code, explanations, list_codes


def _complete_code(incomplete: str) -> list[str]:
    """The codes that begin with what was typed, for the completion of shells."""
    return sorted(code for code in explanations() if code.startswith(incomplete))


def explain(
    code: Annotated[
        str,
        typer.Argument(
            help="The code, as messages show it: topic-pattern. Or the class of an error: OffsetError.",
            autocompletion=_complete_code,
        ),
    ] = "",
) -> None:
    """Print what a code means, with an example of what has the problem and of what to write instead.

    Without a code, list all codes. The documentation has the same.
    """
    if code:
        text = explain_code(code)
        if out.is_terminal:
            out.print(Markdown(text), highlight=False)
        else:
            print_text(text)
        return
    for area, title in AREAS.items():
        out.print(title, style="bold")
        out.print(Columns(list_codes(area), padding=(0, 3)) if out.is_terminal else "\n".join(list_codes(area)))
        out.print()
