"""The notebook of the functions for frames: its cells, and the page that they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.documentation import Block

__all__ = ["NOTEBOOK", "cells", "code", "page", "plots"]

NOTEBOOK = Path(__file__).parents[1] / "examples" / "frames.ipynb"


def cells() -> list[dict[str, Any]]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def code() -> list[Block]:
    """The cells of code; the line of one is its place in the notebook."""
    return [
        Block(NOTEBOOK.name, place, "python", "".join(cell["source"]))
        for place, cell in enumerate(cells())
        if cell["cell_type"] == "code"
    ]


def plots() -> set[int]:
    """Return the places of the cells that draw, for which the tests have no library."""
    return {place for place, cell in enumerate(cells()) if "plot" in cell["metadata"].get("tags", ())}


def page() -> str:
    """The notebook as a page of the site."""
    head = "<!-- Made of examples/frames.ipynb by `make reference`. -->\n\n"
    texts = ("".join(cell["source"]) for cell in cells())
    parts = [
        f"```python\n{text}\n```" if cell["cell_type"] == "code" else text.replace("../docs/", "")
        for cell, text in zip(cells(), texts, strict=True)
    ]
    return head + "\n\n".join(parts) + "\n"
