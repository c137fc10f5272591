"""Route files of a server, and their changes since the last scan."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from turnout.base.files import read_file
from turnout.base.untrusted import is_text
from turnout.base.yaml_values import load

_log = logging.getLogger("turnout.server")
_SUFFIXES = (".yaml", ".yml")
_CONFIG_NAMES = ("turnout.yaml", "turnout.yml")


@dataclass(frozen=True, slots=True)
class RouteFile:
    """A route file as it was found.

    Attributes:
        digest: digest of its text and of the files that it names for its transforms and mappings.
        problem: reason why its text could not be read; "" if it could.
    """

    path: Path
    text: str
    digest: str
    problem: str = ""


def digest_of(text: str, folder: Path) -> str:
    """Return a short digest of a route's text and of the connector and mapping files that it names."""
    digest = hashlib.sha256(text.encode())
    for file in _included(text, folder):
        with contextlib.suppress(OSError):
            digest.update(b"\0" + read_file(file))
    return digest.hexdigest()[:16]


def _included(text: str, folder: Path) -> list[Path]:
    files = [folder / name for name in _named(text)]
    # A device or a pipe would never end.
    return [file for file in files if os.path.isfile(file) or not os.path.lexists(file)]  # noqa: PTH113


@lru_cache(maxsize=1024)
def _named(text: str) -> tuple[str, ...]:
    """Return the files that a route names. The result is cached, as parsing takes milliseconds."""
    try:
        document = load(text)
    except yaml.YAMLError:
        return ()
    named = [document.get(key) for key in ("transforms", "mappings")] if isinstance(document, dict) else []
    return tuple(name for name in named if isinstance(name, str))


_Stamp = tuple[tuple[str, int, int], ...]


class Files:
    """Route files of a server: single files, and the files of folders.

    Args:
        paths: folders and files. Of a folder these are the files ``*.yaml`` and ``*.yml``, but for ``turnout.yaml``
            and those that begin with a dot.
    """

    def __init__(self, paths: Sequence[Path], *, config: Path | None = None) -> None:
        self._paths = [path.absolute() for path in paths]
        self._config = config.absolute() if config else None
        self._cached: dict[Path, tuple[_Stamp, RouteFile]] = {}

    @property
    def folder(self) -> Path | None:
        """Folder for new routes; None if the server was given files only."""
        return next((path for path in self._paths if path.is_dir()), None)

    def scan(self) -> dict[Path, RouteFile]:
        """Return the current files; files with unchanged size and time are not read again."""
        read: dict[Path, tuple[_Stamp, RouteFile]] = {}
        for path in self._listed():
            try:
                read[path] = self._read(path)
            except FileNotFoundError:
                continue
            except OSError as failure:
                read[path] = _unreadable(path, f"cannot be read: {failure.strerror}")
            except UnicodeDecodeError as failure:
                read[path] = _unreadable(path, f"is not UTF-8: the byte at {failure.start}")
            except Exception as failure:  # noqa: BLE001 - the other files are read nevertheless
                _log.exception("the route file %r cannot be read", str(path))
                read[path] = _unreadable(path, f"cannot be read: {type(failure).__name__}; see the log")
        self._cached = read
        return {path: file for path, (_, file) in read.items()}

    def _listed(self) -> Iterator[Path]:
        listed: dict[Path, None] = {}
        for path in self._paths:
            inside = self._inside(path) if path.is_dir() else [path]
            listed |= dict.fromkeys(file for file in inside if file == path or is_route(file))
        return (path for path in listed if path != self._config)

    def _inside(self, folder: Path) -> list[Path]:
        try:
            return sorted(folder.iterdir())
        except OSError as failure:
            _log.error("the folder %s cannot be listed: %s", folder, failure.strerror)
            return [path for path in self._cached if path.parent == folder]

    def _read(self, path: Path) -> tuple[_Stamp, RouteFile]:
        before = self._cached.get(path)
        if before is not None and _stamp(path, before[1].text) == before[0]:
            return before
        if not is_text(path.name):
            raise OSError(errno.EINVAL, "its name is not UTF-8", repr(path.name))
        text = read_file(path).decode("utf-8")
        return _stamp(path, text), RouteFile(path, text, digest_of(text, path.parent))


def _unreadable(path: Path, problem: str) -> tuple[_Stamp, RouteFile]:
    """Return an entry for an unreadable file; it is read again at each scan."""
    return (), RouteFile(path, "", problem, problem)


def is_route(path: Path) -> bool:
    """Return True if a file in a folder is a route's, by its name."""
    return path.suffix in _SUFFIXES and path.name not in _CONFIG_NAMES and not path.name.startswith(".")


def _stamp(path: Path, text: str) -> _Stamp:
    """Return times and sizes of a route file and of the files that it names."""
    stamps = []
    for file in (path, *_included(text, path.parent)):
        try:
            stat = file.stat()
        except OSError:
            stamps.append((str(file), 0, -1))
        else:
            stamps.append((str(file), stat.st_mtime_ns, stat.st_size))
    return tuple(stamps)
