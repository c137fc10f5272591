"""TimestampRouter: put the record's time into the topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from turnout.transforms.base import Transform
from turnout.transforms.options import Option

__all__ = ["TimestampRouter"]


@dataclass(frozen=True, slots=True)
class TimestampRouter(Transform):
    """See ``summary``. A bad pattern makes every record fail; it is not found earlier, as in Connect."""

    summary: ClassVar[str] = "Builds the topic from the old one and the record's timestamp, in UTC."
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("topic.format", "STRING", "The new topic.", default="${topic}-${timestamp}"),
        Option(
            "timestamp.format",
            "STRING",
            "The pattern of the timestamp.",
            default="yyyyMMdd",
            valid="java.text.SimpleDateFormat",
        ),
    )

    topic_format: str = "${topic}-${timestamp}"
    timestamp_format: str = "yyyyMMdd"
