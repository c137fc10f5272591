"""Read a nats-server configuration file: its whole grammar, as plain Python values.

The format is nats-server's own (its ``conf`` package): ``key = value``, ``key: value`` or ``key value``; maps
in ``{}``, arrays in ``[]``, both separated by commas, semicolons or line ends; comments after ``#`` and
``//``; strings in ``'…'``, in ``"…"`` with escapes, bare, or as a block in ``( … )``; ``$variables`` looked up
in the blocks around and then in the environment; ``include`` of other files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from turnout.subjects.errors import ConfigSyntaxError

ConfigBlock: TypeAlias = dict[str, object]
"""A block of a configuration, by its keys; its values are blocks, lists, texts, numbers and flags."""

_SPACE = " \t"
_ENDS_LINE = "\n\r"
_ENDS_BARE = " \t\n\r;,]}"
_SEPARATORS = "=:"
_INTEGER = re.compile(r"(-?[0-9]+)(?:([kmgtpe])(i?b?)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_TRUE = frozenset(("true", "yes", "on"))
_FALSE = frozenset(("false", "no", "off"))
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
# A password hash may be unquoted although it starts with "$".
_BCRYPT = "2a$"
_MAX_DEPTH = 64

_Read = Callable[[Path], str]


def load_config(path: Path | str) -> ConfigBlock:
    r"""Parse a configuration file, with its includes read and its variables substituted.

    Raises:
        ConfigSyntaxError: with the file and the line of the trouble.
        FileNotFoundError: when there is no such file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "shop.conf").write_text("mappings { orders: eu.orders }")
    ...     _ = (Path(folder) / "nats-server.conf").write_text("port: 4222\ninclude shop.conf")
    ...     load_config(Path(folder) / "nats-server.conf")
    ...
    {'port': 4222, 'mappings': {'orders': 'eu.orders'}}
    """
    path = Path(path)
    return parse_config(_read(path), file=path, environment=os.environ)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def parse_config(
    text: str, *, file: Path | str = "", read: _Read = _read, environment: Mapping[str, str] | None = None
) -> ConfigBlock:
    """Parse the text of a configuration.

    Args:
        text: the configuration.
        file: its name, for errors and for the includes, which are relative to its folder.
        read: reads an included file.
        environment: values of variables that no block defines; empty if not given.

    Raises:
        ConfigSyntaxError: with the file and the line of the trouble.

    >>> parse_config('region = eu; mappings { "orders.*": [{ destination: "eu.$1", weight: 80% }] }; here: $region')
    {'region': 'eu', 'mappings': {'orders.*': [{'destination': 'eu.$1', 'weight': '80%'}]}, 'here': 'eu'}
    """
    return _ConfigParser(text, Path(file) if file else None, read, environment or {}, depth=0).document()


class _ConfigParser:
    """Parser of one file. *maps* is the stack of blocks for the lookup of variables."""

    def __init__(
        self, text: str, file: Path | None, read: _Read, environment: Mapping[str, str], *, depth: int
    ) -> None:
        self.text = text
        self.file = file
        self.read = read
        self.environment = environment
        self.depth = depth
        self.at = 0
        self.maps: list[ConfigBlock] = []

    def document(self) -> ConfigBlock:
        """Return the whole file. Braces around it are allowed, as JSON has them."""
        self.skip_space_and_comments()
        braced = self.peek() == "{"
        if braced:
            self.at += 1
        mapping = self.members(closing="}" if braced else "")
        self.skip_space_and_comments()
        if self.at < len(self.text):
            raise self.wrong(f"expected the end of the file, found {self.peek()!r}")
        return mapping

    def members(self, closing: str) -> ConfigBlock:
        """Keys and values up to *closing*, which is consumed."""
        mapping: ConfigBlock = {}
        self.nest(mapping)
        while True:
            self.skip_space_and_comments(also=",;")
            head = self.peek()
            if head == closing:
                self.at += len(closing)
                break
            if not head:
                raise self.wrong("the file ends inside a block")
            if head in _SEPARATORS or head in "]}":
                raise self.wrong(f"expected a key, found {head!r}")
            key, bare = self.key()
            if bare and key.lower() == "include" and self.peek() in _SPACE + _ENDS_LINE:
                mapping.update(self.include())
                continue
            self.skip_space_and_comments()
            if self.peek() and self.peek() in _SEPARATORS:
                self.at += 1
                self.skip_space_and_comments()
            mapping[key] = self.value()
            self.end_of_value(closing)
        self.maps.pop()
        return mapping

    def nest(self, mapping: ConfigBlock) -> None:
        if len(self.maps) >= _MAX_DEPTH:
            raise self.wrong(f"more than {_MAX_DEPTH} blocks inside one another")
        self.maps.append(mapping)

    def key(self) -> tuple[str, bool]:
        """Parse a key; return it, and True if it has no quotes."""
        quote = self.peek()
        if quote in ("'", '"'):
            self.at += 1
            return self.until(quote), False
        start = self.at
        while self.peek() and self.peek() not in _SPACE + _ENDS_LINE + _SEPARATORS:
            self.at += 1
        return self.text[start : self.at], True

    def until(self, quote: str) -> str:
        """Return the text up to a quote, which is consumed; nothing in it is special."""
        end = self.text.find(quote, self.at)
        if end < 0:
            raise self.wrong(f"the file ends before the closing {quote}")
        text = self.text[self.at : end]
        self.at = end + 1
        return text

    def end_of_value(self, closing: str) -> None:
        """After a value only a separator, a line's end, a comment or the block's end may follow."""
        while self.peek() and self.peek() in _SPACE:
            self.at += 1
        head = self.peek()
        if not head or head in ",;\n\r#" or head == closing or self.text.startswith("//", self.at):
            return
        raise self.wrong(f"expected a comma, a line end or the end of the block after a value, found {head!r}")

    def value(self) -> object:
        head = self.peek()
        if head == "{":
            self.at += 1
            return self.members("}")
        if head == "[":
            self.at += 1
            return self.array()
        if head == "'":
            self.at += 1
            return self.until("'")
        if head == '"':
            self.at += 1
            return self.escaped(closing='"')
        if head == "(":
            return self.block()
        if not head or head in ",;]}":
            raise self.wrong(f"expected a value, found {head!r}" if head else "expected a value, found the end")
        return self.bare()

    def array(self) -> list[object]:
        items: list[object] = []
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.wrong(f"more than {_MAX_DEPTH} arrays inside one another")
        while True:
            self.skip_space_and_comments(also="," if items else "")
            if self.peek() == "]":
                self.at += 1
                self.depth -= 1
                return items
            if not self.peek():
                raise self.wrong("the file ends inside an array")
            items.append(self.value())
            self.end_of_value("]")

    def block(self) -> str:
        """Parse a block string, from ``(`` to a line that is only ``)``."""
        end = re.compile(r"\n\)[ \t]*(?=\r?\n|\Z)").search(self.text, self.at)
        if end is None:
            raise self.wrong("the file ends before the ')' on a line of its own")
        text = self.text[self.at + 1 : end.start() + 1]
        self.at = end.end()
        return text

    def escaped(self, closing: str) -> str:
        """Return a string with escapes, up to *closing*, which is consumed."""
        parts = bytearray()
        while True:
            head = self.peek()
            if not head:
                raise self.wrong("the file ends inside a string")
            self.at += 1
            if head == closing:
                return parts.decode("utf-8", "surrogateescape")
            parts += self.escape() if head == "\\" else head.encode("utf-8", "surrogateescape")

    def escape(self) -> bytes:
        """Parse the characters after a backslash, which is consumed already."""
        letter = self.peek()
        self.at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter].encode()
        if letter == "x":
            digits = self.text[self.at : self.at + 2]
            if re.fullmatch("[0-9a-fA-F]{2}", digits):
                self.at += 2
                return bytes.fromhex(digits)
            raise self.wrong(f"expected two hexadecimal digits after \\x, found {digits!r}")
        raise self.wrong(f'there is no escape \\{letter}; there are \\xXX, \\t, \\n, \\r, \\" and \\\\')

    def bare(self) -> object:
        """Return a word: a number, a boolean, a variable or a string."""
        start = self.at
        parts = bytearray()
        plain = True
        while self.peek() and self.peek() not in _ENDS_BARE:
            head = self.peek()
            self.at += 1
            if head == "\\":
                plain = False
                parts += self.escape()
            else:
                parts += head.encode("utf-8", "surrogateescape")
        word = parts.decode("utf-8", "surrogateescape")
        if not plain:
            return word
        lower = word.lower()
        if lower in _TRUE or lower in _FALSE:
            return lower in _TRUE
        if word.startswith("$"):
            return self.variable(word[1:], start)
        return _number(word)

    def variable(self, name: str, start: int) -> object:
        if name.startswith(_BCRYPT):
            return "$" + name
        for block in reversed(self.maps):
            if name in block:
                return block[name]
        if name in self.environment:
            inner = _ConfigParser(f"value = {self.environment[name]}", None, self.read, {}, depth=self.depth)
            return inner.document().get("value")
        self.at = start
        raise self.wrong(
            f"the variable ${name} is not defined, neither above nor in the environment (quote a '$' text)"
        )

    def include(self) -> ConfigBlock:
        while self.peek() and self.peek() in _SPACE:
            self.at += 1
        head = self.peek()
        if head in ("'", '"'):
            self.at += 1
            name = self.until(head)
        else:
            start = self.at
            while self.peek() and self.peek() not in " \t\n\r;}":
                self.at += 1
            name = self.text[start : self.at]
        if not name:
            raise self.wrong("include needs the name of a file")
        if self.depth >= _MAX_DEPTH:
            raise self.wrong(f"more than {_MAX_DEPTH} files include one another")
        path = (self.file.parent if self.file else Path()) / name
        try:
            text = self.read(path)
        except OSError as failure:
            raise self.wrong(f"cannot read the included file {str(path)!r}: {failure.strerror or failure}") from failure
        return _ConfigParser(text, path, self.read, self.environment, depth=self.depth + 1).document()

    def skip_space_and_comments(self, also: str = "") -> None:
        while True:
            head = self.peek()
            if head and (head.isspace() or head in also):
                self.at += 1
            elif head == "#" or self.text.startswith("//", self.at):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def wrong(self, problem: str) -> ConfigSyntaxError:
        """Return the error for *problem* at the current line."""
        line = self.text.count("\n", 0, self.at) + 1
        source = self.text.splitlines()[line - 1] if self.text.splitlines()[line - 1 :] else ""
        return ConfigSyntaxError(problem, file=str(self.file or ""), line=line, text=source)


def _number(word: str) -> object:
    """Return a bare word as a number where it is one (``8K``, ``64MB``, ``1.5``), else the word itself (``40%``)."""
    match = _INTEGER.fullmatch(word) if len(word) < 1000 else None
    if match:
        digits, unit, suffix = match.groups()
        if not unit:
            return int(digits)
        base = 1024 if suffix else 1000
        return int(digits) * base ** ("kmgtpe".index(unit.lower()) + 1)
    return float(word) if _FLOAT.fullmatch(word) else word
