"""TopicRegexRouter: RegexRouter by the name of Confluent's cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.regex_router import RegexRouter


@dataclass(frozen=True, slots=True)
class TopicRegexRouter(RegexRouter):
    """See ``summary``. Confluent's takes expressions of RE2, which mean the same here."""

    summary: ClassVar[str] = "RegexRouter, under its name in Confluent's cloud."
    kafka: ClassVar[bool] = False
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.cloud.transforms.TopicRegexRouter",)
