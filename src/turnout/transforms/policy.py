"""Handling of records that a stage cannot process: Connect's ``errors.*`` properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from turnout.transforms.checks import one_of
from turnout.transforms.options import Option, Options

_REPLICATION = 3
"""Connect's default replication factor of a dead letter topic."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """Handling of failures.

    Attributes:
        tolerance: ``none`` stops the run at the first failure, ``all`` sends the record to the dead letters.
        log: whether failures are logged with stage, class, message and place; `log_messages` adds key and value.
        retry_timeout: read and without effect, as is `retry_delay_max`: see `notes`.
        failed_predicates: ``fail``: a failing predicate is a failure of its stage, as in released Kafka;
            ``not-matched``: the stage is left out and the failure logged, whatever ``negate`` says; a Filter filters
            the record (KIP-585's draft).
        dead_letter_topic: topic of failed records, empty for none.
        bad_headers: whether a header that a sink cannot carry makes its record fail, or is left out and counted.

    >>> from turnout.transforms import Chain
    >>> properties = {"topics": "orders", "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    >>> Chain.from_config(properties, sink=True).errors == ErrorPolicy(tolerance="all", dead_letter_topic="dead")
    True
    """

    tolerance: Literal["none", "all"] = "none"
    log: bool = False
    log_messages: bool = False
    retry_timeout: int = 0
    retry_delay_max: int = 60000
    dead_letter_topic: str = ""
    dead_letter_replication: int = _REPLICATION
    dead_letter_headers: bool = False
    failed_predicates: str = "fail"
    bad_headers: Literal["deadLetter", "drop"] = "deadLetter"

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """Build one from the parsed ``errors.*`` properties."""
        return cls(**{field: options[option.name] for field, option in zip(_FIELDS, OPTIONS, strict=True)})

    def notes(self) -> tuple[str, ...]:
        """Settings without effect here, one sentence each."""
        messages: list[str] = []
        if self.retry_timeout != 0:
            messages.append(
                f"errors.retry.timeout={self.retry_timeout} has no effect: Connect retries only what fails for a "
                "passing reason, and no transform, predicate or converter here does; a sink that cannot be reached "
                "fails the micro-batch, which is done again from the checkpoint"
            )
        if self.log_messages and not self.log:
            messages.append("errors.log.include.messages=true has no effect without errors.log.enable=true")
        if self.dead_letter_replication != _REPLICATION:
            messages.append(
                f"errors.deadletterqueue.topic.replication.factor={self.dead_letter_replication} has no effect: "
                "the dead letter topic is not created here"
            )
        return tuple(messages)


OPTIONS: tuple[Option, ...] = (
    Option(
        "errors.tolerance",
        "STRING",
        "Whether a failure stops the run.",
        default="none",
        check=one_of("none", "all"),
        valid="none, all",
    ),
    Option("errors.log.enable", "BOOLEAN", "Log failures with stage, class, message and place.", default=False),
    Option("errors.log.include.messages", "BOOLEAN", "Log the record's key and value too.", default=False),
    Option("errors.retry.timeout", "LONG", "No effect: nothing here fails for a passing reason.", default=0),
    Option("errors.retry.delay.max.ms", "LONG", "No effect; see errors.retry.timeout.", default=60000),
    Option("errors.deadletterqueue.topic.name", "STRING", "Where failed records go; blank for nowhere.", default=""),
    Option(
        "errors.deadletterqueue.topic.replication.factor",
        "SHORT",
        "No effect: topics are not created.",
        default=_REPLICATION,
    ),
    Option(
        "errors.deadletterqueue.context.headers.enable",
        "BOOLEAN",
        "Add __connect.errors.* headers.",
        default=False,
    ),
    Option(
        "errors.predicates",
        "STRING",
        "Result of a failing predicate: a failure, or no match; Filter then drops the record (not in Kafka).",
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
