"""Descriptions of attributes, read from class docstrings."""

from __future__ import annotations

import inspect
import re

_ENTRY = re.compile(r" {4}(\w+): (.*)")


def attribute_texts(kind: type) -> dict[str, str]:
    """Return the text of each entry below ``Attributes:`` in a class's and its parents' docstrings, by name."""
    texts: dict[str, str] = {}
    for holder in reversed(kind.__mro__):
        texts |= _of_docstring(inspect.cleandoc(holder.__doc__ or ""))
    return texts


def first_sentence(kind: type) -> str:
    """Return the first line of a class's own docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


def _of_docstring(text: str) -> dict[str, str]:
    _, _, section = text.partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry:
            name = entry[1]
            texts[name] = entry[2]
        elif name and line.startswith(" " * 8):
            texts[name] += " " + line.strip()
        else:
            break
    return texts
