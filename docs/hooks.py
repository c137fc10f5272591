"""What the site does beyond Markdown, while it is built.

The changelog of the repository is a page. Mermaid diagrams are drawn, so that a reader's browser needs no script for
them. Links to files of the repository that
are no pages become plain text: the site does not have those files.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import mermaidx
from mkdocs.structure.files import File

WEIGHTS = {
    "changelog.md": 0.0001,
    "decisions/": 0.0001,
    "performance": 0.1,
    "cookbook/": 2,
    "concepts.md": 2,
    "faq.md": 2,
    "troubleshooting.md": 2,
}
"""Of a page, or a folder, in the search: what answers a question comes before the reasons and the history of it."""

_LINK_UP = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+)[^)]*\)")


def on_config(config: Any) -> Any:
    """Have fenced blocks of the language ``mermaid`` drawn, and pages edited where ``repo_url`` leads to."""
    config.edit_uri = "edit/main/docs/" if config.repo_url else None
    fence = {"name": "mermaid", "class": "diagram", "format": drawn}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the changelog, whose links into the folder of pages become links between pages."""
    text = (Path(config.docs_dir).parent / "CHANGELOG.md").read_text(encoding="utf-8")
    within = re.sub(r"\]\(docs/", "](", text)
    # What else of the repository it names is no page.
    plain = re.sub(r"\[([^\]]*)\]\((?![a-z-]+\.md|reference/|decisions/|https?://|#)[^)]*\)", r"\1", within)
    files.append(File.generated(config, "changelog.md", content=plain))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Weigh the page for the search; leave the text of a link that leads out of the folder of pages."""
    weight = next((weight for name, weight in WEIGHTS.items() if page.file.src_uri.startswith(name)), None)
    if weight is not None:
        page.meta.setdefault("search", {})["boost"] = weight
    depth = page.file.src_uri.count("/")
    return _LINK_UP.sub(lambda link: link[1] if link[2].count("/") > depth else link[0], markdown)


def drawn(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """A diagram as SVG in the page; its styles are bound to an id, which must be another one for each diagram."""
    svg = mermaidx.render(source).svg()
    own = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return f'<div class="{css_class}" tabindex="0">{svg.replace("my-svg", own)}</div>'
