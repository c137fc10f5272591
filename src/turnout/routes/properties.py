"""Java properties files."""

from __future__ import annotations

import re

_SEPARATOR = re.compile(r"((?:[^\\=:\s]|\\.)*)(?:\s*[=:]\s*|\s+|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def properties(text: str) -> tuple[dict[str, str], list[tuple[str, int]]]:
    r"""Return the entries of a Java properties file, and each repeated name with its line.

    ``#`` and ``!`` begin comments; a name ends at ``=``, ``:`` or space; a backslash at the end of a line continues it
    in the next, elsewhere it begins an escape.

    >>> properties("a = 1\n# no\nb\\:c: 2, \\\n   3")
    ({'a': '1', 'b:c': '2, 3'}, [])
    """
    entries: dict[str, str] = {}
    twice: list[tuple[str, int]] = []
    pending = ""
    first = 1
    for number, raw in enumerate(text.splitlines(), 1):
        line = pending + raw.lstrip()
        if not pending:
            first = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        name, value = _entry(line)
        if name in entries:
            twice.append((name, first))
        entries[name] = value
    if pending:
        name, value = _entry(pending)
        entries[name] = value
    return entries, twice


def _entry(line: str) -> tuple[str, str]:
    head = _SEPARATOR.match(line)
    assert head is not None
    return _unescaped(head[1]), _unescaped(line[head.end() :]).strip()


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(escape: re.Match[str]) -> str:
    letter = escape[1]
    return chr(int(letter[1:], 16)) if len(letter) > 1 else _CONTROLS.get(letter, letter)
