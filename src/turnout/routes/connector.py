"""Properties of a connector, from a file of Connect or inline, and those of them that a route ignores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from turnout.base.terminal import did_you_mean, nearest
from turnout.base.untrusted import is_text
from turnout.errors import ConfigError, Mistake, shortened
from turnout.routes.properties import properties
from turnout.routes.variables import Variables
from turnout.transforms.java.text import split_list
from turnout.transforms.options import option_text
from turnout.transforms.policy import OPTIONS as POLICY_OPTIONS

_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_LISTS = ("transforms", "predicates")
_KNOWN = (*_LISTS, *_CONVERTERS, *(option.name for option in POLICY_OPTIONS))
_MAX_EXAMINED = 200
"""Names that nothing reads, for which a guess is made."""
_ALIKE = 0.85
"""A name so much like one that is known is taken for a slip, also in a file that holds what others read."""


@dataclass(frozen=True, slots=True)
class Connector:
    """The properties of one connector.

    Attributes:
        properties: all of them, as text.
        file: their file; None if in the route itself.
        name: the connector's, where the file says it.
    """

    properties: Mapping[str, str | None]
    file: Path | None = None
    name: str | None = None

    @classmethod
    def in_place(cls, block: Mapping[str, object]) -> Connector:
        """Return the properties of a block of a route."""
        return cls({str(name): option_text(value) for name, value in block.items()})

    @classmethod
    def read(cls, file: Path) -> Connector:
        """Return the properties of a ``.json`` or a ``.properties`` file that a route takes its transforms from.

        Raises:
            ConfigError: the file is neither, a name is in it twice, or it has no transforms.
            OSError: it cannot be read.
        """
        connector = cls.load(file)
        if not connector.aliases("transforms"):
            guess = nearest("transforms", connector.properties, _ALIKE)
            hint = f'; did you mean "transforms" by {guess!r}?' if guess and guess != "transforms" else ""
            problem = f"{file} defines no transforms: expected a list of aliases under the name 'transforms'{hint}"
            raise ConfigError([Mistake("", problem)])
        return connector

    @classmethod
    def load(cls, file: Path) -> Connector:
        """Return the properties of a file, with transforms or without.

        Raises:
            ConfigError: the file is neither JSON nor properties, or a name is in it twice.
            OSError: it cannot be read.
        """
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as failure:
            problem = f"{file}: found the byte 0x{failure.object[failure.start]:02x}, expected text in UTF-8"
            raise ConfigError([Mistake("", problem)]) from None
        if file.suffix != ".json":
            written = _of_properties(text, file)
            return cls(dict(written), file, written.get("name"))
        config, name = _of_json(text, file)
        entries = {str(key): option_text(value) for key, value in config.items()}
        if not is_text("".join(f"{key}{value}" for key, value in (*entries.items(), ("name", name)))):
            raise ConfigError([Mistake("", f"{file}: found half of a character (\\ud800 to \\udfff), expected text")])
        return cls(entries, file, name)

    def filled(self, variables: Variables) -> tuple[Connector, list[Mistake]]:
        """Return the connector with the variables of its used properties filled in, and a warning for each literal."""
        unused = set(self._unused())
        used = {name: text for name, text in self.properties.items() if name not in unused}
        properties, warnings = variables.of_connector(used)
        return replace(self, properties={**self.properties, **properties}), warnings

    def aliases(self, kind: str) -> list[str]:
        """Return the names listed in ``transforms`` or ``predicates``."""
        return [alias for alias in split_list(self.properties.get(kind) or "") if alias]

    def mistakes(self) -> Iterator[Mistake]:
        """Names that nothing reads and that are slips of ones that are read; in a route's own block all of them."""
        aliases = {kind: self.aliases(kind) for kind in _LISTS}
        for index, name in enumerate(self._unused()):
            near = nearest(name, _KNOWN, _ALIKE) if index < _MAX_EXAMINED else None
            kind, alias = self._unlisted(name)
            if alias and f"{kind}.{alias}.type" not in self.properties:
                listed = aliases[kind]
                guess = did_you_mean(alias, listed) if index < _MAX_EXAMINED else ""
                shown = shortened(", ".join(listed)) or "none"
                yield Mistake(name, f"{alias!r} is not listed in {kind!r}{guess} (listed are {shown})")
            elif near is not None or name.startswith("errors.") or self.file is None:
                guess = did_you_mean(name, _KNOWN) if index < _MAX_EXAMINED else ""
                yield Mistake(name, f"unknown name{guess} (known here: {', '.join(_KNOWN)})")

    def notes(self) -> Iterator[str]:
        """Yield the names of ignored properties."""
        wrong = {mistake.path for mistake in self.mistakes()}
        ignored = [name for name in self._unused() if name not in wrong]
        if ignored:
            where = self.file.name if self.file else "transforms"
            yield f"{where}: these belong to other parts of Connect and are ignored: {', '.join(ignored)}"

    def _unused(self) -> list[str]:
        read = {f"{kind}.{alias}" for kind in _LISTS for alias in self.aliases(kind)} | set(_CONVERTERS)
        return [name for name in self.properties if name not in _KNOWN and read.isdisjoint(_above(name))]

    def _unlisted(self, name: str) -> tuple[str, str]:
        """Return the kind and the alias of an option that belongs to no listed transform or predicate; else nothing."""
        kind, _, rest = name.partition(".")
        alias, dot, _option = rest.partition(".")
        return (kind, alias) if kind in _LISTS and dot else ("", "")


def _above(name: str) -> Iterator[str]:
    """Yield the prefixes of a dotted name."""
    return accumulate(name.split(".")[:-1], "{}.{}".format)


def _of_json(text: str, file: Path) -> tuple[Mapping[str, object], str | None]:
    """Return a connector's properties and its name.

    They are in ``{"name": …, "config": {…}}``, as Connect's REST interface takes it, in that of ``?expand=info``, or
    alone.
    """
    twice: list[str] = []

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        twice.extend(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        return dict(pairs)

    try:
        loaded = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as failure:
        raise ConfigError([Mistake("", f"{file}, line {failure.lineno}: not JSON: {failure.msg}")]) from failure
    except (RecursionError, ValueError):
        raise ConfigError([Mistake("", f"{file}: too deep, or a number too long, for a connector's JSON")]) from None
    loaded = _of_expanded(loaded, file)
    config = loaded.get("config", loaded) if isinstance(loaded, dict) else None
    if not isinstance(loaded, dict) or not isinstance(config, dict):
        raise ConfigError([Mistake("", f"{file}: expected an object, or one under 'config'")])
    if twice:
        raise ConfigError([Mistake("", f"{file}: {name!r} occurs twice") for name in twice])
    return config, option_text(loaded.get("name"))


def _of_expanded(loaded: object, file: Path) -> object:
    """Return the only connector of ``GET /connectors?expand=info``; other documents unchanged."""
    if not isinstance(loaded, dict) or not loaded or "config" in loaded:
        return loaded
    infos = [entry.get("info") for entry in loaded.values() if isinstance(entry, dict)]
    if len(infos) < len(loaded) or not all(isinstance(info, dict) and "config" in info for info in infos):
        return loaded
    if len(infos) > 1:
        names = shortened(", ".join(sorted(loaded)))
        problem = f"{file} has {len(infos)} connectors ({names}), expected one, as GET /connectors/NAME answers"
        raise ConfigError([Mistake("", problem)])
    return infos[0]


def _of_properties(text: str, file: Path) -> Mapping[str, str]:
    entries, twice = properties(text)
    if twice:
        raise ConfigError([Mistake("", f"{file}, line {line}: {name!r} occurs twice") for name, line in twice])
    return entries
