"""Queue of deliveries, as the dispatcher sees it: fetch, acknowledge, retry later, give up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from turnout.delivery.attempts import AttemptLog
from turnout.delivery.letters import DeadDelivery
from turnout.nats.protocol.headers import HeaderInput, Headers

OF_LETTERS = ("nats-", "turnout-attempts", "turnout-reason")
"""Beginnings of the headers that a redriven delivery does not have."""


class QueuedMessage(Protocol):
    """Message of a queue, with its acknowledgements; `turnout.nats.jetstream.Message` is one."""

    data: bytes

    @property
    def subject(self) -> str:
        """The subject under which it is stored."""

    @property
    def headers(self) -> Headers:
        """All headers with their values in order."""

    def header(self, name: str) -> str:
        """Return the first value of a header, empty if the header is missing."""

    @property
    def sequence(self) -> int:
        """Its number in the queue, ascending with its age among those that have an order."""

    @property
    def is_redelivered(self) -> bool:
        """True if there may be failed attempts of it."""

    @property
    def timestamp(self) -> datetime:
        """Time at which the message was stored."""

    def ack_now(self) -> None:
        """Acknowledge the message without waiting."""

    async def ack(self) -> None:
        """Acknowledge the message."""

    async def double_ack(self) -> None:
        """Acknowledge the message, and wait until that is certain if the queue can tell."""

    async def nak(self, delay: float | None = None) -> None:
        """Give the message back for *delay* seconds."""

    def nak_now(self) -> None:
        """Give the message back while the dispatcher ends."""

    async def in_progress(self) -> None:
        """Report work in progress."""


class DeliveryQueue(Protocol):
    """Deliveries that wait, and those that were given up."""

    @property
    def name(self) -> str:
        """Name of the stream or topic."""

    @property
    def label(self) -> str:
        """The stream with its identity, or the topic: ids of its messages begin with it."""

    def messages(self) -> AbstractAsyncContextManager[AsyncIterator[QueuedMessage]]:
        """Fetch deliveries without an end."""

    async def settling_seconds(self) -> float:
        """Return the seconds for which messages that a killed dispatcher had may come behind later ones."""

    def wait_of(self, message: QueuedMessage) -> float:
        """Return the seconds until the next attempt of a message that came too early; 0 if the queue held it back."""

    def is_ours(self, message: QueuedMessage) -> bool:
        """Return False if the message went to another dispatcher meanwhile."""

    async def attempts(self) -> AttemptLog:
        """Open the log of failed attempts."""

    async def store_dead(self, subject: str, body: bytes, headers: HeaderInput, identity: str) -> None:
        """Store a delivery that is given up; without an identity nothing is added to its headers."""

    async def is_drained(self) -> bool:
        """Return True if no delivery waits."""

    async def letters(self, count: int) -> list[DeadDelivery]:
        """Return the last dead letters that were not moved, the newest first."""

    async def redrive(self, positions: Collection[str] | None = None) -> int:
        """Move dead letters back among the deliveries; return their number.

        Args:
            positions: positions of the letters, as `letters` gives them; None for all.
        """
