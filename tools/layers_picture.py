"""The rooms of the package and who imports whom, as a Mermaid diagram drawn from the imports.

``python -m tools.layers_picture`` prints it. Of arrows that follow from others only the others are drawn: who imports
`engine` may import whatever `engine` stands on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = "turnout"
SOURCE = Path(__file__).parents[1] / "src" / ROOT


def picture() -> str:
    """The diagram."""
    return "\n".join(["flowchart TD", *(f"  {room} --> {below}" for room, below in sorted(drawn(imports())))]) + "\n"


def rooms() -> set[str]:
    """The packages below the top one, and the two modules at the very bottom."""
    return {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()} | {"errors", "secrets"}


def imports() -> dict[str, set[str]]:
    """Room → the rooms that it imports when it runs, not only for annotations."""
    graph = grimp.build_graph(ROOT, exclude_type_checking_imports=True, cache_dir=None)
    named = rooms()
    imported: dict[str, set[str]] = {room: set() for room in named}
    for module in graph.modules:
        room = _room(module)
        if room in named:
            below = {_room(target) for target in graph.find_modules_directly_imported_by(module)}
            imported[room] |= (below & named) - {room}
    return imported


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def drawn(imported: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """The arrows that do not follow from others; where rooms import each other, none follows from the way around."""
    below = {room: _reached(room, imported) for room in imported}
    for room, direct in imported.items():
        for target in direct:
            others = (below[other] for other in direct - {target})
            if not any(target in reached and room not in reached for reached in others):
                yield room, target


def _reached(room: str, imported: dict[str, set[str]]) -> set[str]:
    """Return every package on which one depends."""
    reached: set[str] = set()
    ahead = list(imported[room])
    while ahead:
        here = ahead.pop()
        if here not in reached:
            reached.add(here)
            ahead += imported[here]
    return reached


if __name__ == "__main__":
    sys.stdout.write(picture())
