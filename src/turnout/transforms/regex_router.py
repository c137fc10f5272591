"""RegexRouter: rewrite the topic by a Java regular expression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Positions
from turnout.transforms.base import Errors, Transform
from turnout.transforms.checks import java_regex, non_null
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.options import Option, OptionError
from turnout.transforms.per_topic import ByTopic, route


@dataclass(frozen=True, slots=True)
class RegexRouter(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Where the expression matches the whole topic, replaces its first find in it."
    kafka: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("regex", "STRING", "The expression.", check=java_regex, valid="java.util.regex"),
        Option(
            "replacement",
            "STRING",
            "The replacement, with $1 and ${name} for groups; may be empty.",
            check=non_null,
            groups_of="regex",
        ),
    )

    regex: str = ""
    replacement: str = ""
    _routed: ByTopic[str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_routed", ByTopic(self._route))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.side, self.regex, self.replacement)

    def doubts(self) -> Iterator[OptionError]:
        """Connect finds a group that is not there with the first topic that matches."""
        try:
            JavaRegex.of(self.regex).check_replacement(self.replacement)
        except RecordError as error:
            problem = f"expected a replacement for {self.regex!r}, found {self.replacement!r}: {error}"
            yield OptionError("replacement", problem)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Give these records their new topics."""
        return route(batch, rows, self._routed)

    def _route(self, topic: str | None) -> str | None:
        if topic is None:
            raise RecordError("the topic is null", "java.lang.NullPointerException")
        pattern = JavaRegex.of(self.regex)
        return pattern.replaced(topic, self.replacement) if pattern.matches(topic) else topic
