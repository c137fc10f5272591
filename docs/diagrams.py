"""Draws the Mermaid diagrams of the pages while the site is built: a reader's browser needs no script for them."""

from __future__ import annotations

import hashlib
from typing import Any

import mermaidx


def on_config(config: Any) -> Any:
    """Have fenced blocks of the language ``mermaid`` drawn."""
    fence = {"name": "mermaid", "class": "diagram", "format": drawn}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def drawn(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """A diagram as SVG in the page; its styles are bound to an id, which must be another one for each diagram."""
    svg = mermaidx.render(source).svg()
    own = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return f'<div class="{css_class}">{svg.replace("my-svg", own)}</div>'
