"""``${NAME}``, ``${NAME:-otherwise}``, ``${env:NAME}`` and ``${file:…}`` in every text of a route."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path as FilePath

from turnout.base.files import read_file
from turnout.base.terminal import did_you_mean
from turnout.errors import Mistake
from turnout.routes.limits import CallerLimits
from turnout.routes.yaml_text import Document, Path
from turnout.transforms.registry import UnknownNameError, find_transform

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


_TESTS = "tests"
"""The top-level key whose texts are records, in which nothing is filled in."""

_STAGES = "transforms"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER = re.compile(r"([A-Za-z][\w.-]*):(?!-)")
"""Begin of a variable of Connect: the name of a provider of values (KIP-297)."""
_SPARKS_OWN = re.compile(r"\$\{(?:env:|system:|spark\.|hive)")
"""Pattern of variables that Spark resolves, in its own properties alone."""
_GROUP = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_ENVIRONMENT = "env:"
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
        return {key: self._part(key, value) for key, value in document.items()}

    def _part(self, key: str, value: object) -> object:
        if key == _TESTS:
            return value
        if key == _STAGES and isinstance(value, list):
            return [self._stage(stage, (key, at)) for at, stage in enumerate(value)]
        if key == _STAGES and isinstance(value, dict):
            return self._properties(value, (key,))
        if key == "mappings" and isinstance(value, dict):
            # Sources of mappings are texts as well. YAML reads the word no as false.
            self.mistakes += [
                ((key, str(source)), f"a source is text, found {source!r}: put it in quotes")
                for source in value
                if not isinstance(source, str)
            ]
            value = {self.filled(str(source), (key, str(source))): target for source, target in value.items()}
        return self.fill(value, (key,))

    def _stage(self, stage: object, path: Path) -> object:
        """Fill in the options of one transform of a list, and those of its predicates."""
        if not isinstance(stage, dict):
            return self.fill(stage, path)
        texts = {str(name): text for name, text in stage.items() if isinstance(text, str)}
        return {
            name: self.filled(value, (*path, str(name)), placeholders_of(str(name), texts))
            if isinstance(value, str)
            else self.fill(value, (*path, str(name)))
            for name, value in stage.items()
        }

    def _properties(self, block: Mapping[str, object], path: Path) -> Document:
        """Fill in properties of Connect in the route itself."""
        return {
            name: self.filled(value, (*path, str(name)), placeholders_in(str(name), block))
            if isinstance(value, str)
            else self.fill(value, (*path, str(name)))
            for name, value in block.items()
        }

    def of_connector(self, properties: Mapping[str, str | None]) -> tuple[dict[str, str | None], list[Mistake]]:
        """Return the properties of a connector's file as a worker would have them, and a warning for each literal.

        Connect knows variables with a provider alone (KIP-297): another ``${…}`` is text, unless an option gives it a
        meaning.
        """
        filled: dict[str, str | None] = {}
        warnings = []
        for name, text in properties.items():
            known = placeholders_in(name, properties)
            filled[name] = None if text is None else self.filled(text, (_STAGES, name), known, providers_alone=True)
            literal = (
                None if known is None else next(filter(None, map(partial(_literal, known), _names(text or ""))), None)
            )
            if literal is not None:
                problem = (
                    f"${{{literal}}} is text in a connector's file and is not replaced: write ${{env:{literal}}} for "
                    "the variable"
                )
                warnings.append(Mistake(f"{_STAGES}.{name}", problem))
        return filled, warnings

    def fill(self, value: object, path: Path) -> object:
        """Return the value at *path* of a document with the variables in its texts filled in."""
        if isinstance(value, str):
            return self.filled(value, path)
        if isinstance(value, dict):
            for key in value:
                if "${" in str(key) and path != ("mappings",):
                    self.mistakes.append(((*path, str(key)), "variables are filled in in values, and not in names"))
            return {key: self.fill(below, (*path, str(key))) for key, below in value.items()}
        if isinstance(value, list):
            return [self.fill(below, (*path, position)) for position, below in enumerate(value)]
        return value

    def filled(
        self, text: str, path: Path, known: frozenset[str] | None = frozenset(), *, providers_alone: bool = False
    ) -> str:
        """Return a text with its variables filled in, unchanged where that is impossible.

        Args:
            text: the text.
            path: its path, for mistakes.
            known: names that have a meaning of their own in it; None if it is in a language with its own ``${…}``.
            providers_alone: only ``${env:…}`` and ``${file:…}`` are variables, as in Connect.
        """
        reader = _TextReader(self, path[:1] == ("spark",), known, providers_alone=providers_alone or known is None)
        try:
            return reader.substituted(text)
        except _UnusableError as failure:
            self.mistakes.append((path, str(failure)))
            return text

    def value_of(self, name: str) -> str | None:
        """Return the value of a variable; None if it is not set.

        Raises:
            _UnusableError: a caller may not name it.
        """
        refused = None if self.limits is None else self.limits.variable_problem(name)
        if refused is not None:
            raise _UnusableError(refused)
        return self.values.get(name)

    def of_file(self, reference: str) -> str:
        """Return a whole file without its final line end, or one key of a properties file (KIP-297)."""
        if self.limits is not None:
            raise _UnusableError("no file is read for the text of a caller")
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


class _TextReader:
    """Reads the variables of one text.

    Args:
        variables: their values.
        of_spark: whether it is a property of Spark, which has variables of its own.
        known: as for `Variables.filled`.
        providers_alone: likewise.
    """

    def __init__(
        self, variables: Variables, of_spark: bool, known: frozenset[str] | None, *, providers_alone: bool
    ) -> None:
        self.variables = variables
        self.of_spark = of_spark and variables.limits is None
        self.known = known
        self.providers_alone = providers_alone

    def substituted(self, text: str, depth: int = 0) -> str:
        """Return the text with its variables filled in.

        Raises:
            _UnusableError: one has no value, or is none.
        """
        if depth > _MAX_DEPTH:
            raise _UnusableError(f"more than {_MAX_DEPTH} nested variables")
        parts = []
        at = 0
        while (begin := text.find("${", at)) >= 0:
            if self.providers_alone and not self._has_provider(text, begin):
                parts.append(text[at : begin + 2])
                at = begin + 2
                continue
            if not self.providers_alone and text[max(at, begin - 1) : begin] == "$":
                # $${ is the text ${.
                parts.append(text[at : begin - 1] + "${")
                at = begin + 2
                continue
            end = _closing(text, begin)
            parts += [text[at:begin], self._value(text[begin:end], depth)]
            at = end
        return "".join([*parts, text[at:]])

    def _has_provider(self, text: str, begin: int) -> bool:
        """Return True for a variable of Connect; in a language with its own ``${…}`` only for a known provider."""
        if self.known is None:
            return text.startswith((_ENVIRONMENT, _FILE), begin + 2)
        return _PROVIDER.match(text, begin + 2) is not None

    def _value(self, whole: str, depth: int) -> str:
        """Return the value of one ``${…}``."""
        inside = whole[2:-1]
        if inside in (self.known or ()) or (self.of_spark and _SPARKS_OWN.match(whole)):
            return whole
        if inside.startswith(_FILE):
            return self.variables.of_file(self.substituted(inside.removeprefix(_FILE), depth + 1))
        if inside.startswith(_ENVIRONMENT) and self.variables.limits is None:
            inside = inside.removeprefix(_ENVIRONMENT)
        elif (provider := _PROVIDER.match(inside)) is not None:
            raise _UnusableError(_unknown_provider(provider[1]))
        name, otherwise, default = inside.partition(":-")
        if not _NAME.fullmatch(name):
            raise _UnusableError(
                f"found {_head(inside)}, expected ${{NAME}}, ${{NAME:-a default}} or ${{file:path:key}}; "
                "$${ is the text ${"
            )
        value = self.variables.value_of(name)
        if otherwise:
            return value or self.substituted(default, depth + 1)
        if value is None:
            more = f"; ${{{name}}} alone means something in {_MEANINGS[name]}" if name in _MEANINGS else ""
            raise _UnusableError(
                f"the variable {name} is not set: set it, or write ${{{name}:-a default}}, or $${{{name}}} for the text"
                f" itself{more}"
            )
        return value


_MEANINGS = {
    "topic": "topic.format of TimestampRouter",
    "timestamp": "topic.format of TimestampRouter",
    "routedByValue": "route.topic.replacement of EventRouter",
}
"""Placeholders of transforms, and where they are known."""


def placeholders_of(name: str, options: Mapping[str, object]) -> frozenset[str] | None:
    """Return the names that mean something as ``${NAME}`` in an option of a transform.

    None if the option is in a language that has ``${…}`` itself.

    Args:
        name: the option's.
        options: all options of the transform as written, and its ``type``.
    """
    try:
        options_of_kind = {option.name: option for option in find_transform(str(options.get("type"))).kind.options}
    except UnknownNameError:
        return frozenset()
    option = options_of_kind.get(name)
    if option is None:
        return frozenset()
    if option.own_language:
        return None
    groups: set[str] = set()
    if option.groups_of:
        expression = options.get(option.groups_of, options_of_kind[option.groups_of].default)
        groups = set(_GROUP.findall(str(expression)))
    return frozenset({*option.placeholders, *groups})


def placeholders_in(name: str, properties: Mapping[str, object]) -> frozenset[str] | None:
    """Return the same for one of a connector's properties, ``transforms.ALIAS.OPTION``."""
    kind, _, rest = name.partition(".")
    alias, _, option = rest.partition(".")
    if kind != _STAGES or not option:
        return frozenset()
    prefix = f"{kind}.{alias}."
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    return placeholders_of(option, own)


def escaped(text: str, known: frozenset[str] | None) -> str:
    """Return a text of Connect as a route has it: what is no variable there is none here.

    >>> escaped("${PRICE} ${env:PRICE} ${topic}", frozenset({"topic"}))
    '$${PRICE} ${env:PRICE} ${topic}'
    """
    if known is None:
        return text
    return re.sub(r"\$\{([^}]*)", lambda found: found[0] if _literal(known, found[1]) is None else f"${found[0]}", text)


def _names(text: str) -> list[str]:
    return re.findall(r"\$\{([^{}]*)\}", text)


def _literal(known: frozenset[str], inside: str) -> str | None:
    """Return the inside of a ``${…}`` that is neither a variable of Connect nor a placeholder; None for others."""
    return None if inside in known or _PROVIDER.match(inside) else inside


def _unknown_provider(name: str) -> str:
    cure = "set a variable and write ${NAME}, or put the value in a file and write ${file:path:key}"
    if name.isupper():
        cure = f"a default is written with a hyphen, as in ${{{name}:-a default}}"
    elif name in ("dir", "directory"):
        cure = "write ${file:path} with the whole path of the key's file"
    elif name in ("spark", "system", "hiveconf", "hivevar"):
        cure = "Spark fills it in in the block spark alone; set a variable and write ${NAME}"
    return f"found ${{{name}:…, and there is no provider {name!r} of values here (there are env and file): {cure}"


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
