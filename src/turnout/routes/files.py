"""The files that a route names: relative names start at the route's own folder, and files to read have to exist."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import TypeVar

from turnout.base.options import camel_case
from turnout.codecs import named_files
from turnout.codecs.schema_registry import RegistryOptions
from turnout.nats.protocol.options import FILE_OPTIONS
from turnout.routes.document import SubscriptionsPart
from turnout.routes.endpoints import Endpoint
from turnout.routes.endpoints.tables import FileLookup
from turnout.routes.yaml_text import Path
from turnout.subscriptions.store_url import with_absolute_paths

End = TypeVar("End", bound=Endpoint)


class FileNames:
    """Names of files as they are seen from a folder."""

    def __init__(self, folder: FilePath) -> None:
        self.folder = folder

    def mistakes(self, document: Mapping[str, object]) -> Iterator[tuple[Path, str]]:
        """Path and problem of each file that a source or a sink names and that cannot be read."""
        sinks = document.get("sinks")
        ends: list[tuple[Path, object]] = [(("source",), document.get("source")), (("sink",), document.get("sink"))]
        if isinstance(sinks, dict):
            ends += [(("sinks", str(name)), sink) for name, sink in sinks.items()]
        for path, end in ends:
            if isinstance(end, dict) and end.get("format") == "nats":
                for option in map(camel_case, FILE_OPTIONS):
                    problem = self._problem(end.get(option))
                    if problem:
                        yield (*path, option), problem

    def _problem(self, name: object) -> str | None:
        if not isinstance(name, str) or "${" in name:
            return None
        file = self._at(name)
        if not os.path.isfile(file):  # noqa: PTH113 - Path.is_file raises for a name that is too long
            return f"found {name!r}, expected a file: there is none at {file}"
        return None if os.access(file, os.R_OK) else f"found {name!r}, expected a file that can be read: {file} cannot"

    def _at(self, name: str) -> FilePath:
        # Path.expanduser fails for the home of an unknown user.
        return (self.folder / os.path.expanduser(name)).absolute()  # noqa: PTH111

    def endpoint(self, end: End) -> End:
        """Return the source, the sink or the table with its files' whole names."""
        options = ("path",) if isinstance(end, FileLookup) else FILE_OPTIONS
        named = {field: value for field in options if (value := getattr(end, field, None)) is not None}
        return end.model_copy(update={field: str(self._at(name)) for field, name in named.items()}) if named else end

    def codec(self, part: Mapping[str, object]) -> dict[str, object]:
        """Return a key's or value's settings with their files' whole names."""
        whole = {**part, **{setting: str(self._at(name)) for setting, name in named_files(part).items()}}
        registry, files = part.get("registry"), RegistryOptions.file_names(part.get("registry"))
        if isinstance(registry, Mapping) and files:
            tls = {**registry["tls"], **{name: str(self._at(file)) for name, file in files.items()}}
            whole["registry"] = {**registry, "tls": tls}
        return whole

    def subscriptions(self, part: SubscriptionsPart | None) -> SubscriptionsPart | None:
        """Return the subscriptions with the whole name of their store's file."""
        return None if part is None else part.model_copy(update={"store": with_absolute_paths(part.store, self.folder)})

    def checkpoint(self, location: str | None) -> str | None:
        """Return the folder's whole name; a URL is unchanged."""
        return (
            location
            if location is None or "://" in location or location.startswith("file:")
            else str(self._at(location))
        )
