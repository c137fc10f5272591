"""Limits of a route: of its losses, beyond which it counts as unhealthy, and of its callers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from turnout.base.options import camel_case
from turnout.codecs import named_files
from turnout.codecs.schema_registry import RegistryOptions
from turnout.nats.protocol.options import FILE_OPTIONS
from turnout.routes.endpoints.base import Part
from turnout.routes.yaml_text import Path
from turnout.subscriptions.store_url import files_of, resolved, with_absolute_paths

_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")


def share_of(value: object) -> object:
    """Return a share as a number from 0 to 1.

    >>> share_of("5%"), share_of(0.5), share_of(False)
    (0.05, 0.5, False)

    Raises:
        ValueError: it is no share.
    """
    if value is None or value is False or value == "off":
        return None if value is None else False
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = float(percent[1]) / 100 if percent else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise ValueError(f"expected a share as 5% or 0.05, or off; found {value!r}")
    return float(number)


Share = Annotated[
    float | Literal[False] | None,
    BeforeValidator(share_of),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^([0-9]{1,3}(\.[0-9]{1,6})? ?%|off)$"},
                {"enum": [False, None]},
            ]
        }
    ),
]


class HealthPart(Part):
    """Largest shares that a route may lose within 15 minutes: ``5%`` or ``0.05``; ``off`` for any.

    Attributes:
        dead_lettered: of the records read, those sent to the dead letter topic and nowhere else.
        discarded: share of the records read that failed without a dead letter.
        undeliverable: share of the deliveries that no sink accepted.
        unmatched: share of the records read that no subscription matches.
    """

    dead_lettered: Share = None
    discarded: Share = None
    undeliverable: Share = None
    unmatched: Share = None

    def over(self, base: HealthPart) -> HealthPart:
        """Return these limits, with those of *base* where none is given."""
        return base.model_copy(update={name: limit for name, limit in self if limit is not None})


_LOCAL = re.compile(r"""(?:^|[\s"'=,;\[({])(?:/|~|file:|\.\.(?:/|$))|/\.\./""")
"""The beginning of a file's name somewhere in an option of Spark's or of Kafka's client."""

_PROVIDERS = "config.providers"
"""Kafka's client reads files and the environment by itself where it is given one."""

_ROUTES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """Limits of a caller's route text: the variables, files and stores of the server that it may name.

    Attributes:
        writer: whether the caller has the right to write; others may name neither variables nor files.
        folder: folder of all files that a text may name, after resolving symbolic links.
        variables: the names that ``${NAME}`` may stand for.
        store: the URL of the server's own store, which may be named in any location.
        checkpoints: the server's own folder of checkpoints, likewise.
    """

    writer: bool
    folder: FilePath
    variables: frozenset[str] = frozenset()
    store: str | None = None
    checkpoints: FilePath | None = None

    def variable_problem(self, name: str) -> str | None:
        """Return why a variable may not be named; None if it may."""
        if not self.writer:
            return "variables are filled in only for callers with the right to write"
        if name in self.variables:
            return None
        names = ", ".join(sorted(self.variables)) or "none"
        return f"the variable {name} may not be named by callers: permitted are {names} (--route-variables)"

    def mistakes(self, document: Mapping[str, object], folder: FilePath) -> Iterator[tuple[Path, str]]:
        """Find each file that the text may not name, without looking for any outside of the folder of routes.

        Args:
            document: parsed text, its variables filled in.
            folder: base folder of relative names.
        """
        yield from self._includes(document, folder)
        yield from self._codecs((), document, folder)
        yield from self._codecs(("webhooks",), document.get("webhooks"), folder)
        sinks = document.get("sinks")
        endpoints: list[tuple[Path, object]] = [((name,), document.get(name)) for name in ("source", "sink")]
        endpoints += [(("sinks", str(name)), sink) for name, sink in sinks.items()] if isinstance(sinks, dict) else []
        tables, subscriptions = document.get("tables"), document.get("subscriptions")
        endpoints += [(("tables", str(name)), one) for name, one in tables.items()] if isinstance(tables, dict) else []
        feeds = subscriptions.get("feeds") if isinstance(subscriptions, dict) else None
        endpoints += [(("subscriptions", "feeds", "table"), feeds.get("table"))] if isinstance(feeds, dict) else []
        for path, endpoint in endpoints:
            if isinstance(endpoint, dict):
                yield from self._endpoint(path, endpoint, folder)
                yield from self._codecs(path, endpoint, folder)
        yield from self._options(("spark",), document.get("spark"))
        checkpoint = document.get("checkpoint")
        if isinstance(checkpoint, str) and not (self.writer and self._within(self.checkpoints, folder / checkpoint)):
            yield from self._url(("checkpoint",), checkpoint, folder)
        store = subscriptions.get("store") if isinstance(subscriptions, dict) else None
        if isinstance(store, str) and not self._is_own_store(store, folder):
            for name in files_of(store):
                yield from self._file(("subscriptions", "store"), name, folder)

    def _codecs(self, path: Path, block: object, folder: FilePath) -> Iterator[tuple[Path, str]]:
        """Find the files that the formats of a route, a sink or webhooks name."""
        for side in ("key", "value"):
            part = block.get(side) if isinstance(block, Mapping) else None
            if not isinstance(part, Mapping):
                continue
            for setting, name in named_files(part).items():
                yield from self._file((*path, side, setting), name, folder)
            for option, name in RegistryOptions.file_names(part.get("registry")).items():
                yield from self._file((*path, side, "registry", "tls", option), name, folder)

    def _includes(self, document: Mapping[str, object], folder: FilePath) -> Iterator[tuple[Path, str]]:
        for key in ("transforms", "mappings"):
            if isinstance(value := document.get(key), str):
                yield from self._include((key,), value, folder)
        block = document.get("mappings")
        if not isinstance(block, dict) or len(block) > 2:
            return
        file = block.get("file")
        if isinstance(file, str) and block.keys() <= {"file", "account"}:
            yield from self._include(("mappings", "file"), file, folder)
            return
        # Destinations that would be looked for as files, as in a slip of {file: …, account: …}.
        for name, value in block.items():
            if isinstance(value, str) and _LOCAL.search(value):
                yield from self._file(("mappings", str(name)), value, folder)

    def _include(self, path: Path, name: str, folder: FilePath) -> Iterator[tuple[Path, str]]:
        # A file of mappings takes variables and other files in; callers write files of routes.
        if name.lower().endswith(_ROUTES):
            yield path, f"found {name[:80]!r}, expected another file than one of a route"
        else:
            yield from self._file(path, name, folder)

    def _endpoint(self, path: Path, endpoint: dict[object, object], folder: FilePath) -> Iterator[tuple[Path, str]]:
        for option in map(camel_case, FILE_OPTIONS):
            if isinstance(name := endpoint.get(option), str):
                yield from self._file((*path, option), name, folder)
        if isinstance(file_path := endpoint.get("path"), str):
            # Spark's own, which starts from where Spark does.
            start = folder if path[0] == "tables" and endpoint.get("format") != "delta" else FilePath.cwd()
            yield from self._url((*path, "path"), file_path, start)
        yield from self._options((*path, "options"), endpoint.get("options"))
        catalog = endpoint.get("catalog")
        yield from self._options((*path, "catalog"), catalog)
        for name, value in catalog.items() if isinstance(catalog, dict) else ():
            for file in files_of(value) if isinstance(value, str) and value.startswith("sqlite:") else ():
                yield from self._file((*path, "catalog", str(name)), file, folder)

    def _options(self, path: Path, options: object) -> Iterator[tuple[Path, str]]:
        for name, value in options.items() if isinstance(options, dict) else ():
            if _PROVIDERS in str(name):
                yield (*path, str(name)), "is not taken from callers"
            elif isinstance(value, str) and _LOCAL.search(value):
                yield from self._file((*path, str(name)), value.removeprefix("file:"), self.folder)

    def _url(self, path: Path, file_path: str, folder: FilePath) -> Iterator[tuple[Path, str]]:
        """Yield the mistakes of a local folder or ``file:`` URL; other URLs are not checked."""
        scheme, _, rest = file_path.partition(":")
        local = scheme.lower() == "file"
        if local or "://" not in file_path:
            name = f"/{rest.lstrip('/')}" if local else file_path
            # Spark reads braces as alternatives.
            yield from self._file(path, name if not set("{}") & set(name) else "/", folder)

    def _file(self, path: Path, name: str, folder: FilePath) -> Iterator[tuple[Path, str]]:
        if not self.writer:
            yield path, "files may be named only by callers with the right to write"
        elif not self._within(self.folder, folder / name) or name.startswith("~"):
            yield path, f"found {name[:80]!r}, expected a file in the folder of routes: callers may name no other"

    def _within(self, allowed: FilePath | None, file: FilePath) -> bool:
        if allowed is None or "\0" in str(file):
            return False
        return FilePath(os.path.realpath(file)).is_relative_to(os.path.realpath(allowed))

    def _is_own_store(self, url: str, folder: FilePath) -> bool:
        if not self.writer or self.store is None or "\0" in url or "%00" in url:
            return False
        return resolved(with_absolute_paths(url, folder)) == resolved(with_absolute_paths(self.store, FilePath.cwd()))
