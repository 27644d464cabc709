"""Documents of declarations: text files, and YAML with the line of every value.

Messages give the location of a mistake, but never quote the document: the line that YAML cannot parse is often the one
with a password that needs quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kdsl.errors import Problem, ResolveError, Where

Lines = dict[str, int]
SQL_ENDINGS = (".sql", ".ddl")
"""How the names of SQL files end."""
_YAML = "tag:yaml.org,2002:"
_PLAIN = (f"{_YAML}map", f"{_YAML}seq")
_NUMBERS = (f"{_YAML}int", f"{_YAML}float", f"{_YAML}timestamp")
_MERGE = f"{_YAML}merge"
MAX_REPEATED = 10_000
"""The most values of a document that are there because its anchors are used again; few lines could make billions."""
_TAG = "a value begins with a tag that is not supported here; put '!…' in quotes"
_ESCAPE = "a string in double quotes has a backslash that starts no escape; double the backslash, or use single quotes"
_INDENT = "the line is indented by another number of blanks than the lines that it belongs to; align it with them"
_ANCHOR = "a value that begins with '*' or '&' is not the name of an anchor; put it in quotes"
_UNQUOTED = {
    "found undefined alias": _ANCHOR,
    "expected alphabetic or numeric character": _ANCHOR,
    "could not determine a constructor": _TAG,
    "found undefined tag handle": _TAG,
    "found unknown escape character": _ESCAPE,
    "expected escape sequence": _ESCAPE,
    "expected <block end>, but found '<block mapping start>'": _INDENT,
    "mapping values are not allowed here": "mapping values are not allowed here; put a value that has ': ' in it in "
    "quotes",
}
"""Messages of PyYAML with a likely cause, mostly a value without quotes, and what to write instead."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_TOKEN = re.compile(r"'(?:<[a-z ]+>|[\]\[{},:?-])'")


def read_text(path: str | Path, what: str, code: str) -> str:
    """Read a UTF-8 file, and return its content without a byte order mark.

    Args:
        path: The file.
        what: The kind of file, for the message.
        code: The code of the problem.
    """
    raw = Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        where = Where(file=str(path), line=raw.count(b"\n", 0, e.start) + 1)
        message = f"the {what} is not UTF-8: it contains the byte 0x{raw[e.start]:02x}"
        raise ResolveError(f"{path} has 1 problem", [Problem(code, message, "save it as UTF-8", where)]) from None


def _never(path: str) -> bool:
    """Return False: no value is read as it is written."""
    del path
    return False


class YamlDocument:
    """A YAML document: its value, the line of each part, and its problems.

    Args:
        text: The document.
        file: The name of its file, for messages.
        as_written: Whether the value of a path is kept as the string that is written. YAML reads ``010`` as 8 and
            ``yes`` as true, which is wrong for the value of an option, or for a password.

    Attributes:
        value: The value of the document; None if it is empty or cannot be parsed.
        lines: The line of each part, from 1, by its path (``$.clusters.production``).
        problems: The mistakes in the document.
    """

    def __init__(self, text: str, file: str | None, as_written: Callable[[str], bool] = _never) -> None:
        """Parse the document; what YAML does not allow is not raised but added to ``problems``."""
        self.file = file
        self.lines: Lines = {}
        self.problems: list[Problem] = []
        self.value: Any = None
        self._as_written = as_written
        self._inside: list[yaml.Node] = []
        self._seen: set[int] = set()
        self._repeated = 0
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.value = None if root is None else self._walk(root, "$")
        except yaml.reader.ReaderError as e:
            line = text.count("\n", 0, e.position) + 1
            self._add_problem(f"it contains the character U+{ord(text[e.position]):04X}", line)
        except yaml.YAMLError as e:
            mark = getattr(e, "problem_mark", None)
            self._add_problem(_reason(e), None if mark is None else mark.line + 1)
        except RecursionError:
            self._add_problem("it is nested too deeply", None)

    def _add_problem(self, reason: str, line: int | None) -> None:
        """Add the problem that the document is not valid YAML."""
        message = f"the document is not valid YAML: {reason}"
        self.problems.append(Problem("yaml", message, "correct this line", Where(file=self.file, line=line)))

    def _count(self, node: yaml.Node) -> bool:
        """Count a node that an anchor repeats. Return whether the document may have it.

        The first one that it may not have is recorded as a problem.
        """
        if id(node) not in self._seen:
            self._seen.add(id(node))
            return True
        self._repeated += 1
        if self._repeated == MAX_REPEATED + 1:
            self._add_problem(
                f"its anchors are used so often that it has more than {MAX_REPEATED:,} further values",
                node.start_mark.line + 1,
            )
        return self._repeated <= MAX_REPEATED

    def _walk(self, node: yaml.Node, path: str) -> Any:
        """Return the value of a node, and store the line of every path in it.

        YAML that documents do not allow is recorded as a problem. An anchor within itself is one, and its value None,
        as is that of an anchor that is used too often.
        """
        self.lines[path] = line = node.start_mark.line + 1
        if any(node is outer for outer in self._inside):
            self._add_problem("an anchor contains itself", line)
            return None
        if not self._count(node):
            return None
        self._inside.append(node)
        try:
            if isinstance(node, yaml.ScalarNode):
                return self._string(node) if self._as_written(path) else self._scalar(node)
            if node.tag not in _PLAIN:
                self._add_problem("a tag is not supported here", line)
            if isinstance(node, yaml.SequenceNode):
                return [self._walk(child, f"{path}[{i}]") for i, child in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._inside.pop()

    def _mapping(self, node: yaml.Node, path: str) -> dict[str, Any]:
        """Return a mapping with the values of its keys, which are strings as written; store the line of each.

        A key that is not a single value is recorded as a problem and left out; of a repeated one, also a problem, the
        last value is returned.
        """
        mapping: dict[str, Any] = {}
        for key_node, child in self._pairs(node):
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem("a key is not a single value", line)
                continue
            key = str(key_node.value)
            inner = f"{path}[{key!r}]" if path.endswith(".options") else f"{path}.{key}"
            if key in mapping:
                message = f"{key!r} is declared twice, first in line {self.lines[inner]}"
                self.problems.append(
                    Problem("repeated-key", message, "remove one", Where(file=self.file, line=line, path=inner))
                )
            mapping[key] = self._walk(child, inner)
            self.lines[inner] = line
        return mapping

    def _pairs(self, node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the keys and values of a mapping, its own before those that ``<<`` merges, which do not replace them.

        Of several that are merged, the first one that has a key counts. A merge of something other than a mapping, or
        of the mapping itself, is recorded as a problem and left out.
        """
        own = [(k, v) for k, v in node.value if k.tag != _MERGE]
        known = {k.value for k, _ in own if isinstance(k, yaml.ScalarNode)}
        for key, merged_value in node.value:
            for source in (
                (merged_value.value if isinstance(merged_value, yaml.SequenceNode) else [merged_value])
                if key.tag == _MERGE
                else ()
            ):
                if not isinstance(source, yaml.MappingNode) or any(source is outer for outer in self._inside):
                    self._add_problem("'<<' merges a value that is not a mapping", key.start_mark.line + 1)
                    continue
                self._inside.append(source)
                pairs = self._pairs(source) if self._count(source) else []
                self._inside.pop()
                own += [(k, v) for k, v in pairs if not (isinstance(k, yaml.ScalarNode) and k.value in known)]
                known |= {k.value for k, _ in pairs if isinstance(k, yaml.ScalarNode)}
        return own

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        """Return a value in the type that YAML gives it; an invalid one is recorded as a problem, and becomes None."""
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node, deep=True)
        except (ValueError, LookupError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            self._add_problem(f"a value looks like the type {kind!r}, but is not valid", node.start_mark.line + 1)
            return None
        finally:
            loader.dispose()

    def _string(self, node: yaml.ScalarNode) -> Any:
        """A value as the string that is written, because YAML would read 010 as 8; True without quotes in lower case.

        None for a null, and for a value that is not valid in YAML, which is recorded as a problem. Numbers and times
        are not validated.
        """
        plain = self._scalar(node) if node.tag not in _NUMBERS else 0
        if plain is None:
            return None
        return node.value.lower() if isinstance(plain, bool) and node.value.lower() in ("true", "false") else node.value

    def where(self, path: str) -> Where:
        """The location of a path: the file, the path, and the line of the longest part of it that the document has.

        Without a known part it has no line.
        """
        known = path
        while known and known not in self.lines:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        return Where(file=self.file, line=self.lines.get(known), path=path)


def _reason(error: yaml.YAMLError) -> str:
    """The message of PyYAML without anything that it quotes from the document, or advice on quotes and escapes."""
    message = str(getattr(error, "problem", None) or "it cannot be parsed")
    if message.startswith("found character") and message.endswith("cannot start any token"):
        return "a value begins with a character that YAML has a meaning for ('@', '`', '%' or a tab); put it in quotes"
    plain = next((words for start, words in _UNQUOTED.items() if message.startswith(start)), message)
    return plain if plain is not message else _QUOTED.sub(lambda m: m[0] if _TOKEN.fullmatch(m[0]) else "'…'", message)


class DocumentDumper(yaml.SafeDumper):
    """Writes documents whose strings a parser reads as they are, those with line breaks of other systems, too."""


def write_yaml_text(document: object, dumper: type[DocumentDumper] = DocumentDumper) -> str:
    """Write mappings, lists and strings as YAML, in their order."""
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a string in the default style; one with line breaks of other systems in double quotes, with escapes."""
    style = '"' if any(c in "\x85\u2028\u2029" for c in text) else None
    return dumper.represent_scalar(f"{_YAML}str", text, style=style)


DocumentDumper.add_representer(str, _represent_text)
