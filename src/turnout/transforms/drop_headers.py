"""DropHeaders: remove headers by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, Transform
from turnout.transforms.checks import names
from turnout.transforms.options import Option


@dataclass(frozen=True, slots=True)
class DropHeaders(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Removes every header whose name is listed; the others keep their order."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "headers", "LIST", "The names, exact and case-sensitive.", check=names, distinct=True, valid="not empty"
        ),
    )

    headers: tuple[str, ...] = ()

    def named_headers(self) -> Iterator[tuple[str, str]]:
        """See `Transform.named_headers`."""
        return (("headers", name) for name in self.headers)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop them."""
        batch.headers.drop(self.headers, rows)
        return {}
