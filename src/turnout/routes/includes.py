"""Parts of a route that may stand in files of their own, in the formats that their users have already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError, Mistake
from turnout.subjects import mappings_from_file

__all__ = ["mappings_of", "properties", "transforms_of"]


def transforms_of(given: Any, folder: Path) -> list[Any] | dict[str, str]:
    """The ``transforms`` of a route: a list, Connect properties in place, or the name of a connector's file.

    Raises:
        ConfigError: when it is none of these, or the file is not JSON.
        OSError: when the file cannot be read.
    """
    if isinstance(given, list):
        return given
    if isinstance(given, dict):
        return {str(key): _text(value) for key, value in given.items()}
    if isinstance(given, str):
        return _connector(folder / given)
    raise ConfigError([Mistake("", f"found {given!r}, expected a list, a block or the name of a connector's file")])


def _connector(file: Path) -> dict[str, str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".json":
        return properties(text)
    try:
        loaded = json.loads(text)
    except json.JSONDecodeError as failure:
        raise ConfigError([Mistake("", f"{file}: not JSON: {failure.msg}", failure.lineno)]) from failure
    # {"name": …, "config": {…}} is what Connect's REST interface takes; a bare object is its config.
    config = loaded.get("config", loaded) if isinstance(loaded, dict) else None
    if not isinstance(config, dict):
        raise ConfigError([Mistake("", f"{file}: expected an object, or one under 'config'")])
    return {str(key): _text(value) for key, value in config.items()}


def properties(text: str) -> dict[str, str]:
    """The entries of a Java properties file: ``#`` and ``!`` comments, ``=`` or ``:``, continued lines."""
    entries: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=len(line))
        entries[line[:cut].strip()] = line[cut + 1 :].strip().replace("\\\\", "\\")
    return entries


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def mappings_of(given: Any, folder: Path) -> Any:
    """The ``mappings`` of a route: in place, or the name of a nats-server configuration file.

    Raises:
        OSError: when the file cannot be read.
        ConfigError: when it is not a nats-server configuration.
    """
    return mappings_from_file(folder / given) if isinstance(given, str) else given
