"""``${NAME}``, ``${NAME:-otherwise}`` and ``${file:…}`` in the parts of a route that depend on where it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath

from turnout.file_reading import read_file
from turnout.routes.caller_limits import CallerLimits
from turnout.routes.line_numbers import Document, Path
from turnout.routes.properties import properties
from turnout.suggestions import did_you_mean

PLACES = ("source", "sink", "sinks", "subscriptions", "cluster", "checkpoint", "spark")
"""The top-level keys in which variables are filled in.

Not in ``transforms`` and ``mappings``: ``${topic}`` belongs to TimestampRouter there.
"""

SIDES = ("key", "value")
"""The top-level keys in which variables are filled in for the schema registry alone."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPARKS_OWN = re.compile(r"\$\{(?:env:|system:|spark\.|hive)")
"""Pattern of variables that Spark resolves."""
_FILE = "file:"
_MAX_DEPTH = 16
_LARGEST_FILE = 1 << 20


class _UnusableError(ValueError):
    """Raised when a ``${…}`` cannot be filled in; the message gives the reason."""


class Variables:
    """Fills in a route's variables, and collects mistakes and secrets.

    Args:
        values: values by name.
        folder: base folder of file names.
        limits: limits of a text from a caller; None for an operator's own.

    Attributes:
        mistakes: path and problem of each text that cannot be filled in.
        secrets: values from files, as Connect's FileConfigProvider reads secrets from files.
    """

    def __init__(self, values: Mapping[str, str], folder: FilePath, limits: CallerLimits | None = None) -> None:
        self.values = values
        self.limits = limits
        self.folder = folder
        self.mistakes: list[tuple[Path, str]] = []
        self.secrets: set[str] = set()

    def fill_in(self, document: Mapping[str, object]) -> Document:
        """Return the document with its variables filled in; invalid ones stay unchanged."""
        return {
            key: self._registry(value, key) if key in SIDES else self.fill(value, (key,)) if key in PLACES else value
            for key, value in document.items()
        }

    def _registry(self, part: object, side: str) -> object:
        """Fill in the schema registry of keys or values: nothing else of a format depends on where a route runs."""
        if not isinstance(part, dict) or "registry" not in part:
            return part
        return {**part, "registry": self.fill(part["registry"], (side, "registry"))}

    def fill(self, value: object, path: Path) -> object:
        """Return the value at *path* of a document with the variables in its texts filled in."""
        if isinstance(value, str):
            return self._filled(value, path)
        if isinstance(value, dict):
            return {key: self.fill(below, (*path, str(key))) for key, below in value.items()}
        if isinstance(value, list):
            return [self.fill(below, (*path, position)) for position, below in enumerate(value)]
        return value

    def _filled(self, text: str, path: Path) -> str:
        try:
            return self._substituted(text)
        except _UnusableError as failure:
            self.mistakes.append((path, str(failure)))
            return text

    def _substituted(self, text: str, depth: int = 0) -> str:
        if depth > _MAX_DEPTH:
            raise _UnusableError(f"more than {_MAX_DEPTH} nested variables")
        parts = []
        at = 0
        while (begin := text.find("${", at)) >= 0:
            end = _closing(text, begin)
            # Spark fills in the environment as well.
            own = self.limits is None and _SPARKS_OWN.match(text, begin)
            parts += [text[at:begin], text[begin:end] if own else self._value(text[begin + 2 : end - 1], depth)]
            at = end
        return "".join([*parts, text[at:]])

    def _value(self, inside: str, depth: int) -> str:
        """Return the value of one ``${…}``."""
        if inside.startswith(_FILE):
            if self.limits is not None:
                raise _UnusableError("no file is read for the text of a caller")
            return self._of_file(self._substituted(inside.removeprefix(_FILE), depth + 1))
        name, otherwise, default = inside.partition(":-")
        if not _NAME.fullmatch(name):
            raise _UnusableError(
                f"found {_head(inside)}, expected ${{NAME}}, ${{NAME:-a default}} or ${{file:path:key}}"
            )
        refused = None if self.limits is None else self.limits.variable_problem(name)
        if refused is not None:
            raise _UnusableError(refused)
        value = self.values.get(name)
        if otherwise:
            return value or self._substituted(default, depth + 1)
        if value is None:
            raise _UnusableError(f"the variable {name} is not set: set it, or write ${{{name}:-a default}}")
        return value

    def _of_file(self, reference: str) -> str:
        """Return a whole file without its final line end, or one key of a properties file (KIP-297)."""
        whole = self.folder / reference
        name, colon, key = reference.rpartition(":")
        if whole.is_file() or not colon:
            return self._secret(_read(whole).rstrip("\r\n"))
        entries, _twice = properties(_read(self.folder / name))
        if key not in entries:
            raise _UnusableError(f"the file {str(self.folder / name)!r} has no key {key!r}{did_you_mean(key, entries)}")
        return self._secret(entries[key])

    def _secret(self, text: str) -> str:
        if text:
            self.secrets.add(text)
        return text

    def masked(self, text: str) -> str:
        """Return *text* with everything that was read from a file masked."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            for form in (secret, repr(secret)[1:-1]):
                text = text.replace(form, "***")
        return text


def _closing(text: str, begin: int) -> int:
    """Return the offset after the brace that closes the ``${`` at *begin*; a default may contain variables."""
    depth = 0
    for brace in re.compile(r"\$\{|\}").finditer(text, begin):
        depth += 1 if brace[0] == "${" else -1
        if not depth:
            return brace.end()
    raise _UnusableError(f"the {_head(text[begin + 2 :])!r} is never closed")


def _head(inside: str) -> str:
    """Return the beginning of a variable; the text behind its name may be a password."""
    name = re.match(r"\w*", inside)
    assert name is not None
    return f"${{{name[0]}…"


def _read(file: FilePath) -> str:
    try:
        return read_file(file, max_bytes=_LARGEST_FILE).decode("utf-8")
    except OSError as failure:
        raise _UnusableError(f"the file {str(file)!r} cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise _UnusableError(f"the file {str(file)!r} is no text in UTF-8") from None
