"""The pages, and parts of pages, that are made of the code. ``python -m tools.reference_pages`` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice

from tests.documentation import DOCS
from tests.notebook import page as notebook_page
from tests.vector_examples import with_examples

from tools.figures import with_figures
from tools.format_pairs import with_pairs
from tools.layers_picture import picture
from tools.reference_api import grpc_reference, python_reference, rest_reference
from tools.reference_cli import reference as cli_reference
from tools.reference_formats import HEAD as FORMATS_HEAD
from tools.reference_formats import table as formats_table
from tools.reference_metrics import metrics_reference
from tools.reference_route import reference as route_reference
from tools.reference_transforms import debezium_transforms, kafka_transforms, more_transforms, predicates

_ROOMS = re.compile(r"(?<=^```mermaid\n)(?:flowchart TD\n.*?)?(?=^```$)", re.MULTILINE | re.DOTALL)
_FORMATS = re.compile(rf"^{re.escape(FORMATS_HEAD)}\n(?:\|.*\n)*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Generated:
    """A page with something in it that the code says.

    Attributes:
        page: its name in the folder of pages.
        text: makes the page's text of what it is now.
    """

    page: str
    text: Callable[[str], str]

    def __str__(self) -> str:
        return self.page

    def now(self) -> str:
        path = DOCS / self.page
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def staleness(self) -> str:
        """The command that brings the page up to date, with the lines that differ; empty where it is."""
        now = self.now()
        lines = list(islice(unified_diff(now.splitlines(), self.text(now).splitlines(), "now", "made", "", "", 0), 20))
        return "\n".join([f"docs/{self.page} is stale: run `make reference`", *lines]) if lines else ""


def _with_rooms(page: str) -> str:
    return _ROOMS.sub(lambda _: picture(), page, count=1)


def _with_formats(page: str) -> str:
    return _FORMATS.sub(lambda _: formats_table(), page, count=1)


PAGES = (
    Generated("reference/route.md", lambda _: route_reference()),
    Generated("reference/cli.md", lambda _: cli_reference()),
    Generated("frames.md", lambda _: notebook_page()),
    Generated("reference/python.md", lambda _: python_reference()),
    Generated("reference/rest.md", lambda _: rest_reference()),
    Generated("reference/grpc.md", lambda _: grpc_reference()),
    Generated("reference/metrics.md", lambda _: metrics_reference()),
    Generated("reference/transforms.md", lambda _: with_examples(kafka_transforms())),
    Generated("reference/debezium-transforms.md", lambda _: with_examples(debezium_transforms())),
    Generated("reference/more-transforms.md", lambda _: with_examples(more_transforms())),
    Generated("reference/predicates.md", lambda _: with_examples(predicates())),
    Generated("codecs.md", _with_formats),
    Generated("architecture.md", _with_rooms),
    Generated("conversion.md", with_pairs),
    *(
        Generated(page, with_figures)
        for page in (
            "../README.md",
            *sorted(path.name for path in DOCS.glob("performance*.md")),
            "sizing.md",
            "cluster.md",
            "scale-out.md",
            "nats-latency.md",
        )
    ),
)

if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page.page).write_text(page.text(page.now()), encoding="utf-8")
