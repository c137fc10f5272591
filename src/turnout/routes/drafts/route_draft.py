"""Draft of a route made from another configuration: its content, the parts taken over, and the parts left out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from turnout.errors import Mistake, RouteError
from turnout.routes.route import Route

_ENVIRONMENT = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_URL = re.compile(r"(?<=url: )\$\{[^{}:]*(?::[^-{}][^{}]*)?\}")
_FROM_FILE = re.compile(r"(userInfo: ['\"]?)?\$\{file:[^{}]*\}")


class Adoption(NamedTuple):
    """Part of the original taken over into the route: its original name, and its path in the route."""

    name: str
    path: str


class Omission(NamedTuple):
    """Part of the original left out of the route: its original name, and the reason."""

    name: str
    why: str


class Loss(Omission):
    """Part of the original without which the route means something else."""

    __slots__ = ()


class Change(Omission):
    """Part of the original taken over in another form: its original name, and what it is now."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A route file that is not written yet.

    Attributes:
        document: its contents, in the order of its keys.
        taken: origins of its parts.
        left: parts that were left out, have another form, or are guesses.
        variables: variables to set where the route runs, as their values are secrets.
        file_variables: those of them that name files.
    """

    document: Mapping[str, object]
    taken: tuple[Adoption, ...]
    left: tuple[Omission, ...]
    variables: tuple[str, ...] = ()
    file_variables: tuple[str, ...] = ()

    @property
    def lossy(self) -> bool:
        """True if something was left out without which the route means something else."""
        return any(isinstance(item, Loss) for item in self.left)

    @staticmethod
    def word(item: Omission) -> str:
        """Return the word by which reports call a part that was left out."""
        return "lost" if isinstance(item, Loss) else "changed" if isinstance(item, Change) else "left"

    def text(self, origin: str) -> str:
        """Return the text of the file, with the parts left out in comments above the route."""
        lines = [f"# Made of {origin}."]
        lines += [f"# {self.word(item)}: {item.name}: {item.why}" for item in self.left]
        return "\n".join([*lines, yaml_of(self.document)])

    def mistakes(self, text: str, file: Path | None = None) -> tuple[Mistake, ...]:
        """Return the mistakes that ``turnout check`` would print for the file once the variables are set."""
        # An existing file is a placeholder for one that is not known yet, and so is a text for what a file will have.
        unset = dict.fromkeys(_ENVIRONMENT.findall(text), "unknown")
        text = _URL.sub("http://unknown", text)
        text = _FROM_FILE.sub(lambda found: f"{found[1]}unknown:unknown" if found[1] else "unknown", text)
        unset |= {**dict.fromkeys(self.variables, "unknown"), **dict.fromkeys(self.file_variables, __file__)}
        values = {**unset, **os.environ}
        try:
            Route.parse(text, values, file=file)
        except RouteError as wrong:
            return wrong.mistakes
        return ()


def yaml_of(document: Mapping[str, object]) -> str:
    """YAML in the order of the document."""
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120))


def route_name(text: str) -> str:
    """Return the name of a route that is most like a text.

    >>> route_name("orders to lake!")
    'orders-to-lake'
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._") or "route"
