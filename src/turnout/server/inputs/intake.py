"""Intake: verifies requests of the inputs, and stores their messages before they are answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnout.base.background import Background, Tasks
from turnout.errors import TurnoutError, message_of
from turnout.server.inputs.config import InputPart
from turnout.server.inputs.messages import BodyError, Incoming, messages_of
from turnout.server.inputs.signatures import Signed, problem_of

if TYPE_CHECKING:
    from turnout.nats.jetstream import JetStream

_log = logging.getLogger("turnout.server")
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request.

    Attributes:
        status: status of the response.
        detail: the problem; "" for a success.
        stored: messages that the stream has now, of this request.
        duplicates: number of these that it had before.
        retry_after: seconds after which the request should be sent again; 0 for none.
    """

    status: int
    detail: str = ""
    stored: int = 0
    duplicates: int = 0
    retry_after: float = 0.0


class Rate:
    """Limit of requests per second; a burst may have one second's requests.

    Args:
        limit: requests a second.
        clock: returns seconds.

    >>> now = [0.0]
    >>> rate = Rate(2, lambda: now[0])
    >>> rate.wait(), rate.wait(), rate.wait()
    (0.0, 0.0, 0.5)
    """

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = max(1.0, limit)
        self._at = clock()

    def wait(self) -> float:
        """Count a request; return 0, or the seconds after which it would be allowed."""
        now = self._clock()
        self._tokens = min(max(1.0, self._limit), self._tokens + (now - self._at) * self._limit)
        self._at = now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._limit
        self._tokens -= 1.0
        return 0.0


class Intake:
    """Inputs of a server, with a connection to NATS for each that is used.

    Connections live in a thread of their own, so that their work does not depend on the callers.

    Args:
        inputs: by name.
        clock: returns seconds, for rates.
        now: returns seconds since 1970, for signatures.

    Attributes:
        counts: of requests by input and outcome.
        messages: messages stored, by input.
    """

    def __init__(
        self,
        inputs: Mapping[str, InputPart],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.inputs = inputs
        self.counts: Counter[tuple[str, str]] = Counter()
        self.messages: Counter[str] = Counter()
        self._now = now
        self._rates = {name: Rate(part.rate, clock) for name, part in inputs.items() if part.rate is not None}
        self._loop = asyncio.new_event_loop()
        self._background = Background("connections of the inputs", self._loop.run_forever)
        self._connections: dict[str, asyncio.Task[JetStream]] = {}
        self._keepers = Tasks("a connection of the inputs")

    def start(self) -> None:
        """Start the thread; connections are made when the first request needs them."""
        self._background.start()

    def close(self) -> None:
        """Close all connections."""
        if self._background.is_alive():
            asyncio.run_coroutine_threadsafe(self._closed(), self._loop).result(_CLOSE_SECONDS)
            self._background.stop()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._background.join()
        self._loop.close()

    async def take(self, name: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """Return the answer to a request, after its messages are stored; None if there is no such input."""
        part = self.inputs.get(name)
        if part is None:
            return None
        answer = await self._answer(name, part, headers, body)
        self.counts[name, _OUTCOMES.get(answer.status, "invalid")] += 1
        self.messages[name] += answer.stored - answer.duplicates
        return answer

    async def _answer(self, name: str, part: InputPart, headers: Mapping[str, str], body: bytes) -> Answer:
        if len(body) > part.max_body:
            return Answer(413, f"a request has at most {part.max_body:,} bytes")
        problem = problem_of(part.kind, part.secrets, Signed(headers, body, self._now(), part.tolerance))
        if problem is not None:
            return Answer(401, problem)
        wait = self._rates[name].wait() if name in self._rates else 0.0
        if wait:
            return Answer(429, f"this input takes {part.rate:g} requests a second", retry_after=wait)
        try:
            messages = messages_of(part.kind, headers, body)
        except BodyError as wrong:
            return Answer(wrong.status, str(wrong))
        storing = asyncio.run_coroutine_threadsafe(self._store(name, part, messages), self._loop)
        return await asyncio.wrap_future(storing)

    # -- in the thread of the connections

    async def _store(self, name: str, part: InputPart, messages: Sequence[Incoming]) -> Answer:
        from turnout.nats.jetstream import Expect

        expect = Expect(stream=part.sink.stream) if part.sink.stream else None
        try:
            js = await self._connection(name, part)
            most = js.connection.max_payload - _HEADERS
            if any(len(message.body) > most for message in messages):
                return Answer(413, f"a message has at most {most:,} bytes")
            publishing = (
                js.publish(
                    part.subject, one.body, headers=one.headers, msg_id=one.msg_id(name), expect=expect, retries=0
                )
                for one in messages
            )
            outcomes = await asyncio.gather(*publishing, return_exceptions=True)
        except (TurnoutError, OSError) as failure:
            return self._unavailable(name, failure)
        for one in outcomes:
            if isinstance(one, TurnoutError | OSError):
                return self._unavailable(name, one)
            if isinstance(one, BaseException):
                raise one
        duplicates = sum(not isinstance(one, BaseException) and one.duplicate for one in outcomes)
        return Answer(200, stored=len(outcomes), duplicates=duplicates)

    def _unavailable(self, name: str, failure: TurnoutError | OSError) -> Answer:
        _log.warning("input %s: not stored: %s", name, message_of(failure))
        return Answer(503, "the stream cannot be reached, or has not confirmed everything: send the same again")

    async def _connection(self, name: str, part: InputPart) -> JetStream:
        """Return the connection of an input; concurrent callers share one attempt."""
        connecting = self._connections.get(name)
        if connecting is None:
            connecting = self._connections[name] = self._loop.create_task(self._connect(name, part))
        try:
            return await asyncio.shield(connecting)
        except Exception:
            if self._connections.get(name) is connecting:
                del self._connections[name]
            raise

    async def _connect(self, name: str, part: InputPart) -> JetStream:
        from turnout.nats.jetstream import connect

        ready: asyncio.Future[JetStream] = self._loop.create_future()

        async def keep() -> None:
            closed = asyncio.Event()
            try:
                async with connect(part.sink.connection) as js:
                    js.connection.on_closed.append(closed.set)
                    ready.set_result(js)
                    await closed.wait()
            except Exception as failure:
                if ready.done():
                    raise
                # The requests that wait for the connection would otherwise wait for ever.
                ready.set_exception(failure)
            finally:
                self._connections.pop(name, None)

        self._keepers.start(keep())
        return await ready

    async def _closed(self) -> None:
        await self._keepers.cancel()


_HEADERS = 32 << 10
"""Bytes of a message that its headers may have."""

_OUTCOMES = {200: "stored", 401: "refused", 429: "limited", 503: "unavailable"}

OUTCOMES = (*_OUTCOMES.values(), "invalid")
"""Outcomes of requests, as metrics name them."""
