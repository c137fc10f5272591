"""RegexRouter: rewrite the topic by a Java regular expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.base import Transform
from turnout.transforms.checks import java_regex
from turnout.transforms.options import Option

__all__ = ["RegexRouter"]


@dataclass(frozen=True, slots=True)
class RegexRouter(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Where the expression matches the whole topic, replaces its first find in it."
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("regex", "STRING", "The expression.", check=java_regex, valid="java.util.regex"),
        Option("replacement", "STRING", "The replacement, with $1 and ${name} for groups; may be empty."),
    )

    regex: str = ""
    replacement: str = ""
