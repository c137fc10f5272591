"""Requests to the JetStream API: JSON in both directions, errors as exceptions (subjects: ADR-19)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConfigError, Mistake
from turnout.nats.jetstream.config import ConsumerInfo, decode
from turnout.nats.jetstream.connection import NatsConnection, PendingRequest, Reply
from turnout.nats.jetstream.errors import RequestTimeoutError, StreamError, api_error
from turnout.nats.protocol.options import Prefix
from turnout.subjects.pattern import is_name

T = TypeVar("T")


def _response(subject: str, answer: Reply) -> JsonObject:
    try:
        response: JsonObject = json.loads(answer.data)
    except (ValueError, RecursionError) as failure:
        raise StreamError(f"{subject}: the answer is not JSON: {answer.data[:80]!r}") from failure
    error = response.get("error")
    if error:
        raise api_error(error, request=subject)
    return response


def _answer_or_refusal(subject: str, answer: Reply) -> JsonObject | StreamError:
    try:
        return _response(subject, answer)
    except StreamError as refusal:
        return refusal


BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
"""Name of a key-value bucket or object store."""


def name_mistake(path: str, name: str | None) -> Mistake | None:
    """Return the mistake in the name of a stream, consumer, durable or queue; None if it is valid."""
    if name is None or is_name(name):
        return None
    return Mistake(path, f"invalid name {name!r}: no dots, *, >, blanks, slashes or control characters, and not empty")


def check_name(path: str, name: str) -> str:
    """*name* itself, if it can be one.

    Raises:
        ConfigError: it cannot.
    """
    mistake = name_mistake(path, name)
    if mistake:
        raise ConfigError([mistake])
    return name


def check_bucket(bucket: str) -> str:
    """Return the name of a key-value bucket or object store, if it can be one.

    Raises:
        ConfigError: it cannot.
    """
    if not BUCKET.fullmatch(bucket):
        raise ConfigError([Mistake("bucket", f"{bucket!r} is not a bucket's name: letters, digits, - and _")])
    return bucket


class Api:
    """JetStream API of one connection and one prefix.

    Args:
        connection: the connection.
        prefix: API prefix of the JetStream.
        timeout: seconds that a request may take, where a call does not say otherwise.
    """

    def __init__(self, connection: NatsConnection, prefix: Prefix, timeout: float) -> None:
        self.connection = connection
        self.prefix = prefix
        self.timeout = timeout
        self._tasks: set[asyncio.Task[object]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that must finish even if its caller is cancelled; `settle` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self, timeout: float) -> None:
        """Wait for the spawned tasks, and cancel those not done in *timeout* seconds."""
        if self._tasks:
            _, late = await asyncio.wait(tuple(self._tasks), timeout=timeout)
            for task in late:
                task.cancel()

    async def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo:
        """Request a consumer's current state from the server.

        Raises:
            ConsumerNotFoundError: there is none of that name.
        """
        return decode(ConsumerInfo, await self.call(f"CONSUMER.INFO.{stream}.{consumer}"))

    async def reset_consumer(self, stream: str, consumer: str, sequence: int | None) -> tuple[ConsumerInfo, int]:
        """Reset a consumer, and return its state and the stream sequence from which it delivers.

        Raises:
            ConsumerResetError: it cannot deliver from there.
        """
        body = None if sequence is None else {"seq": sequence}
        answer = await self.call(f"CONSUMER.RESET.{stream}.{consumer}", body)
        return decode(ConsumerInfo, answer), int(answer.get("reset_seq", 0))

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Delete a consumer.

        Raises:
            ConsumerNotFoundError: there is none of that name.
        """
        await self.call(f"CONSUMER.DELETE.{stream}.{consumer}")

    async def forget_consumer(self, stream: str, consumer: str) -> None:
        """Delete a consumer as clean-up; a missing or unreachable consumer is not an error."""
        with contextlib.suppress(StreamError, ConnectionError):
            await self.delete_consumer(stream, consumer)

    async def raw(self, subject: str, payload: bytes = b"", *, timeout: float | None = None) -> Reply:
        """Send a request whose answer is not JSON, for direct gets."""
        return await self.connection.ask_and_wait(
            self.prefix.api(subject), payload, timeout=self.timeout if timeout is None else timeout
        )

    async def call(self, subject: str, body: JsonMapping | None = None, *, timeout: float | None = None) -> JsonObject:
        """A request and its JSON answer.

        Args:
            subject: after the prefix: ``STREAM.INFO.S``.
            body: the request's JSON object, if it has one.
            timeout: seconds; the context's own if not given.

        Raises:
            StreamError: the server refused; the subclass is the reason.
            NoRespondersError: there is no JetStream under this prefix.
            RequestTimeoutError: no answer in time.
        """
        payload = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        return _response(subject, await self.raw(subject, payload, timeout=timeout))

    async def call_each(self, subject: str, bodies: Sequence[JsonMapping]) -> list[JsonObject | StreamError]:
        """Send requests of one kind together, and return the answer or the refusal of each.

        Raises:
            RequestTimeoutError: not all answers came in time.
            NoRespondersError: there is no JetStream under this prefix.
            ConnectionLostError: the connection is closed.
        """
        connection, where = self.connection, self.prefix.api(subject)
        loop = asyncio.get_running_loop()
        waiters = [PendingRequest(where, loop.create_future()) for _ in bodies]
        tokens: list[bytes] = []
        try:
            for waiter, body in zip(waiters, bodies, strict=True):
                tokens.append(connection.ask(waiter, json.dumps(body, separators=(",", ":")).encode()))
            futures = [waiter.future for waiter in waiters]
            if futures and (late := (await asyncio.wait(futures, timeout=self.timeout))[1]):
                raise RequestTimeoutError(f"{subject}: {len(late)} of {len(bodies)} answers came not in time", code=408)
        finally:
            for token in tokens:
                connection.give_up(token)
        return [_answer_or_refusal(subject, future.result()) for future in futures]

    async def pages(self, subject: str, key: str, body: JsonMapping | None = None) -> AsyncIterator[Any]:
        """Every item of a list that the server gives in pages."""
        offset = 0
        while True:
            page = await self.call(subject, {**(body or {}), "offset": offset})
            items = page.get(key) or []
            for item in items:
                yield item
            offset += len(items)
            if not items or offset >= int(page.get("total", 0)):
                return
