"""Files that a route names: relative names start at its own folder, and some are parts of it in formats of others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Final, TypeVar

from turnout.base.files import check_file
from turnout.base.options import camel_case
from turnout.base.terminal import did_you_mean
from turnout.codecs import named_files
from turnout.codecs.schema_registry import RegistryOptions
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import FILE_OPTIONS
from turnout.records.types import DynamicValue
from turnout.routes.connector import Connector
from turnout.routes.document import SubscriptionsPart
from turnout.routes.endpoints import Endpoint
from turnout.routes.endpoints.tables import FileLookup
from turnout.routes.yaml_text import Document, Path
from turnout.subjects import mappings_from_file
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


_OF_FILE: Final = ("file", "account")


def transforms_of(value: object, folder: FilePath) -> list[Document] | Connector:
    """Return the ``transforms`` of a route: a list, Connect properties in place, or the name of a connector's file.

    Raises:
        ConfigError: when it is none of these, or the file has no transforms.
        OSError: when the file cannot be read.
    """
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return Connector.in_place(value)
    if isinstance(value, str):
        return Connector.read(_file(folder, value))
    raise ConfigError([Mistake("", f"found {value!r}, expected a list, a block or the name of a connector's file")])


def mappings_of(value: DynamicValue, folder: FilePath) -> DynamicValue:
    """Return the ``mappings`` of a route: given in place, or read from a nats-server configuration file.

    A file is named as a text, or as ``{file: nats-server.conf, account: ORDERS}`` for the mappings of one account.

    Raises:
        OSError: when the file cannot be read.
        ConfigSyntaxError: when it is not a nats-server configuration.
        ConfigError: when it has no mappings, or no such account.
    """
    if isinstance(value, str):
        return mappings_from_file(_file(folder, value))
    if not _names_a_file(value, folder):
        return value
    wrong = [mistake for name, part in value.items() if (mistake := _wrong(str(name), part))]
    if "file" not in value:
        wrong.append(Mistake("file", "is required and missing"))
    if wrong:
        raise ConfigError(wrong)
    return mappings_from_file(_file(folder, value["file"]), value.get("account"))


def _file(folder: FilePath, name: str) -> FilePath:
    """Return the file of that name; a pipe or a device would never end."""
    file = folder / name
    check_file(file)
    return file


def _names_a_file(block: object, folder: FilePath) -> bool:
    """Return True if a block is ``{file: …, account: …}`` and not a mapping of subjects with these names.

    Two entries at most, and one of them is the name of an existing file, or both names are as they should be.
    """
    if not isinstance(block, Mapping) or not 1 <= len(block) <= len(_OF_FILE):
        return False
    names = [value for value in block.values() if isinstance(value, str)]
    # Path.is_file raises for a name that is too long.
    has_file = any(os.path.isfile(folder / name) for name in names)  # noqa: PTH113
    return has_file or set(block) == set(_OF_FILE)


def _wrong(name: str, value: object) -> Mistake | None:
    if name not in _OF_FILE:
        return Mistake(name, f"unknown name{did_you_mean(name, _OF_FILE)} (known here: {', '.join(_OF_FILE)})")
    return None if isinstance(value, str) else Mistake(name, f"found {value!r}, expected a text")
