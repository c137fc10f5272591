"""Parts of a route that may be in files of their own, in the formats that their users have already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout.base.files import check_file
from turnout.base.terminal import did_you_mean
from turnout.errors import ConfigError, Mistake
from turnout.routes.connector import Connector
from turnout.routes.yaml_text import Document
from turnout.subjects import mappings_from_file

_OF_FILE = ("file", "account")


def transforms_of(value: object, folder: Path) -> list[Document] | Connector:
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


def mappings_of(value: Any, folder: Path) -> Any:
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


def _file(folder: Path, name: str) -> Path:
    """Return the file of that name; a pipe or a device would never end."""
    file = folder / name
    check_file(file)
    return file


def _names_a_file(block: object, folder: Path) -> bool:
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
