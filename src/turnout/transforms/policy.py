"""What happens to a record that a stage cannot handle: Connect's ``errors.*`` properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from turnout.transforms.checks import one_of
from turnout.transforms.options import Option, Options

__all__ = ["ErrorPolicy"]


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """How failures are treated.

    Attributes:
        tolerance: ``none`` stops the run at the first failure, ``all`` sends the record to the dead letters.
        log: whether each failure is logged, and `log_messages` whether with the record's place.
        failed_predicates: ``fail``: a failing predicate is a failure of its stage, as in released Kafka;
            ``not-matched``: the stage is left out and the failure logged, whatever ``negate`` says (KIP-585's draft).
        dead_letter_topic: where failed records go, empty for nowhere.
    """

    tolerance: Literal["none", "all"] = "none"
    log: bool = False
    log_messages: bool = False
    retry_timeout: int = 0
    retry_delay_max: int = 60000
    dead_letter_topic: str = ""
    dead_letter_replication: int = 3
    dead_letter_headers: bool = False
    failed_predicates: str = "fail"

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """Build one from the parsed ``errors.*`` properties."""
        return cls(**{field: options[option.name] for field, option in zip(_FIELDS, OPTIONS, strict=True)})


OPTIONS: tuple[Option, ...] = (
    Option(
        "errors.tolerance",
        "STRING",
        "Whether a failure stops the run.",
        default="none",
        check=one_of("none", "all"),
        valid="none, all",
    ),
    Option("errors.log.enable", "BOOLEAN", "Log each failure.", default=False),
    Option("errors.log.include.messages", "BOOLEAN", "Log the record's place too.", default=False),
    Option("errors.retry.timeout", "LONG", "Accepted; nothing here is worth a retry.", default=0),
    Option("errors.retry.delay.max.ms", "LONG", "Accepted; see errors.retry.timeout.", default=60000),
    Option("errors.deadletterqueue.topic.name", "STRING", "Where failed records go; blank for nowhere.", default=""),
    Option("errors.deadletterqueue.topic.replication.factor", "SHORT", "Accepted; topics are not made.", default=3),
    Option(
        "errors.deadletterqueue.context.headers.enable",
        "BOOLEAN",
        "Add __connect.errors.* headers.",
        default=False,
    ),
    Option(
        "errors.predicates",
        "STRING",
        "What a failing predicate is: a failure, or not matched (not in Kafka).",
        default="fail",
        check=one_of("fail", "not-matched"),
        valid="fail, not-matched",
    ),
)

_FIELDS = (
    "tolerance",
    "log",
    "log_messages",
    "retry_timeout",
    "retry_delay_max",
    "dead_letter_topic",
    "dead_letter_replication",
    "dead_letter_headers",
    "failed_predicates",
)
