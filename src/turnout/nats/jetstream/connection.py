"""Connection to NATS, nats-py's client with fast paths for high message rates, and requests to the JetStream API.

Requests are JSON in both directions, with errors as exceptions (subjects: ADR-19). This module and
`turnout.nats.jetstream._client` use private names of nats-py's client; a test checks them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConfigError, ConnectionLostError, Mistake, StreamError, TurnoutError
from turnout.nats.jetstream._client import BoundedClient, Frame, FrameParser, Handler, translate, translated, within
from turnout.nats.jetstream.config import ConsumerInfo, decode
from turnout.nats.jetstream.errors import (
    NoRespondersError,
    PermissionDeniedError,
    RequestTimeoutError,
    api_error,
)
from turnout.nats.protocol.headers import NO_RESPONDERS, HeaderInput, Status, encode_table
from turnout.nats.protocol.options import Prefix, begins_tls
from turnout.records.types import DynamicValue
from turnout.secrets import masked_url
from turnout.subjects.pattern import is_name


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to a request."""

    raw_headers: bytes
    data: bytes


class Waiter(Protocol):
    """Receiver of a reply in the read loop: a future, or a counting asynchronous publish.

    Attributes:
        subject: subject of the request.
    """

    subject: str

    def settle(self, raw_headers: bytes, data: bytes) -> None:
        """Accept the answer."""

    def fail(self, failure: TurnoutError) -> None:
        """Accept the failure: no answer will arrive."""


WaiterT = TypeVar("WaiterT", bound=Waiter)


@dataclass(slots=True)
class PendingRequest:
    """Request whose answer a coroutine waits for."""

    subject: str
    future: asyncio.Future[Reply]

    def settle(self, raw_headers: bytes, data: bytes) -> None:
        """Give the answer to the coroutine."""
        if not self.future.done():
            self.future.set_result(Reply(raw_headers, data))

    def fail(self, failure: TurnoutError) -> None:
        """Raise *failure* in the coroutine."""
        if not self.future.done():
            self.future.set_exception(failure)


_log = logging.getLogger(__name__)

ErrorCallback = Callable[[TurnoutError], "Awaitable[None] | None"]

_CONNECTED = Client.CONNECTED
_UNFIT = re.compile(r"[\s]")


@lru_cache(maxsize=4096)
def _checked(subject: str) -> bytes:
    """Encode a subject to publish to; characters that would break the protocol's line are refused."""
    if not subject or _UNFIT.search(subject):
        raise StreamError(f"{subject!r} is not a subject to publish to")
    return subject.encode()


@dataclass(slots=True)
class Interest:
    """Subscription on the wire; its frames are passed to a handler."""

    sid: int
    subject: str


class _InsecureServerError(StreamError, nats.errors.Error):  # type: ignore[misc, unused-ignore]
    """Raised while reconnecting; nats-py tries its next server only after an error of its own classes."""


class NatsConnection(BoundedClient):
    """nats-py's client with frame handlers, immediate publishing and one error callback."""

    def __init__(self, error_callback: ErrorCallback | None = None) -> None:
        super().__init__()
        self.handlers: dict[bytes, Handler] = {}
        self._ps = self._parser = FrameParser(self, self.handlers)
        self._report_to = error_callback
        self._reports: set[asyncio.Future[None]] = set()
        self.on_reconnected: list[Callable[[], None]] = []
        self.on_disconnected: list[Callable[[], None]] = []
        self.on_closed: list[Callable[[], None]] = []
        self._denial_handlers: dict[str, list[Callable[[PermissionDeniedError], None]]] = {}
        self._waiting: dict[bytes, Waiter] = {}
        self._answers_to = b""
        self._answers_denied: PermissionDeniedError | None = None
        self._counter = 0

    async def open(self, servers: list[str], *, timeout: float, **options: Any) -> None:
        """Connect, and listen for answers.

        Raises:
            ConnectionLostError: no server could be reached in time.
        """
        last: list[BaseException] = []

        async def failed(failure: Exception) -> None:
            last.append(failure)
            if self._answers_to:
                self.report(failure)

        try:
            await within(self._first_connect(servers, error_cb=failed, **options), timeout)
        except BaseException as failure:
            await self.shut()
            if isinstance(failure, TimeoutError):
                why = f": {last[-1]}" if last else ""
                message = f"no server of {', '.join(servers)} was reached in {timeout} s{why}"
                raise ConnectionLostError(masked_url(message)) from failure
            raise

    async def _first_connect(self, servers: list[str], **options: Any) -> None:
        """Connect and listen for answers; for as long as it is not stopped, nats-py tries again."""

        async def lost() -> None:
            for call in tuple(self.on_disconnected):
                call()

        async def gone() -> None:
            self._ended()

        async def back() -> None:
            self._answers_denied = None
            for call in tuple(self.on_reconnected):
                call()

        with translated():
            await super().connect(servers, disconnected_cb=lost, closed_cb=gone, reconnected_cb=back, **options)
        inbox = self.new_inbox()
        await self.listen(f"{inbox}.*", self._answered)
        self._answers_to = f"{inbox}.".encode()

    def _ended(self) -> None:
        """Notify everything that waits for this connection that it is closed."""
        self.fail_requests(ConnectionLostError("the connection is closed"))
        while self.on_closed:
            self.on_closed.pop(0)()

    async def _process_info(self, info: JsonObject, initial_connection: bool = False) -> None:
        """Process INFO like nats-py; check the server's greeting before anything is sent."""
        if initial_connection:
            self._secure(info)
        await super()._process_info(info, initial_connection=initial_connection)

    async def _process_err(self, err_msg: str) -> None:
        """Process an error line like nats-py; a denial has its subject as the server wrote it, not in lower case."""
        denial = PermissionDeniedError.of(self._parser.error_line) if "permissions violation" in err_msg else None
        if denial is None:
            await super()._process_err(err_msg)
        else:
            self.report(denial)

    def _secure(self, greeting: JsonObject) -> None:
        """Enforce the TLS rule: nats-py alone uses no TLS unless the server requires it."""
        server = cast("Srv", self._current_server).uri
        if self.options["tls_handshake_first"] or server.scheme == "wss":
            return
        requested = "tls" in self.options or any(server.uri.scheme == "tls" for server in self._server_pool)
        offer = {} if server.scheme == "ws" else greeting
        try:
            greeting["tls_required"] = begins_tls(offer, requested=requested, server=f"{server.hostname}:{server.port}")
        except StreamError as refusal:
            if self._answers_to:
                raise _InsecureServerError(str(refusal)) from None
            raise

    async def shut(self) -> None:
        """Close within a time limit and fail all pending requests."""
        try:
            await super().shut()
        finally:
            self._ended()

    def report(self, failure: BaseException) -> None:
        """Pass an error that belongs to no call to the error callback; log it if no callback is set."""
        known = translate(failure) or StreamError(str(failure) or type(failure).__name__)
        if isinstance(known, PermissionDeniedError):
            self._deny(known)
        if self._report_to is None:
            _log.error("%s: %s", type(known).__name__, known)
            return
        try:
            waits = self._report_to(known)
        except Exception:  # noqa: BLE001 - the user's code, called from the read loop
            _log.exception("the error callback failed on %s", known)
            return
        if inspect.isawaitable(waits):
            task = asyncio.ensure_future(waits)
            self._reports.add(task)
            task.add_done_callback(self._reported)

    def _reported(self, task: asyncio.Future[None]) -> None:
        self._reports.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("the error callback failed", exc_info=task.exception())

    @property
    def inbox_prefix(self) -> str:
        """Prefix of the subjects of answers."""
        return str(self._inbox_prefix.decode())

    def unique(self) -> str:
        """Return a unique name, for consumers and messages."""
        return str(self._nuid.next().decode())

    # -- in: frames to handlers

    async def listen(self, subject: str, handler: Handler, queue: str = "") -> Interest:
        """Subscribe; every frame is passed to *handler* in the read loop, those that arrive together in one call.

        nats-py subscribes again after a reconnect, as for any of its subscriptions.
        """
        sid = self._sid + 1
        key = b"%d" % sid
        self.handlers[key] = handler
        try:
            with translated():
                subscription: Subscription = await super().subscribe(subject, queue=queue)
        except BaseException:
            del self.handlers[key]
            if sid in self._subs:
                self._forget(sid)
            raise
        return Interest(subscription._id, subject)  # noqa: SLF001 - the id has no public name

    def ignore(self, interest: Interest) -> None:
        """Unsubscribe immediately and drop messages in flight. May be called twice."""
        if self.handlers.pop(b"%d" % interest.sid, None) is not None:
            self._forget(interest.sid)

    def quiet(self, interest: Interest) -> None:
        """Unsubscribe on the wire only: frames under way still reach the handler until `ignore`."""
        self._enqueue(b"UNSUB %d\r\n" % interest.sid)

    def _forget(self, sid: int) -> None:
        self._remove_sub(sid)
        if not self.is_closed:
            self._enqueue(b"UNSUB %d\r\n" % sid)

    async def round_trip(self, timeout: float) -> None:
        """Wait for a round trip: all earlier messages of both sides have arrived."""
        if self.is_closed:
            raise ConnectionLostError("the connection is closed")
        # Not nats-py's flush, whose PING overtakes what waits to be written.
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self._enqueue(b"PING\r\n")
        try:
            async with asyncio.timeout(timeout):
                await pong
        except TimeoutError:
            raise RequestTimeoutError(f"no PONG in {timeout:g} s", code=408) from None

    # -- out: frames without a coroutine per message

    def send(self, subject: str, payload: bytes = b"", reply: bytes = b"", headers: HeaderInput | None = None) -> None:
        """Publish now, without waiting: the frame is on its way when the loop next turns.

        Raises:
            ConnectionLostError: the connection is closed, or away with its buffer full.
            StreamError: a subject with blanks, or a payload larger than the server takes.
        """
        self.send_to(_checked(subject), payload, reply, headers)

    def send_to(
        self, subject: bytes, payload: bytes = b"", reply: bytes = b"", headers: HeaderInput | None = None
    ) -> None:
        """Publish like `send`, to a subject received from the server or checked before."""
        if headers:
            block = encode_table(headers)
            size = len(block) + len(payload)
            frame = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(block), size, block, payload)
        else:
            size = len(payload)
            frame = b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, size, payload)
        if size > self._max_payload:
            raise StreamError(f"a message of {size} bytes is larger than the server's {self._max_payload}")
        self._send_frame(frame, size)

    def acknowledge(self, reply: bytes) -> None:
        """Send +ACK to the reply subject of a message, as `send_to` does."""
        self._send_frame(b"PUB " + reply + b"  4\r\n+ACK\r\n", 4)

    def _send_frame(self, frame: bytes, size: int) -> None:
        """Send a frame whose message has *size* bytes."""
        # The steps of `_enqueue` are repeated here: another call would make up a tenth of an acknowledgement.
        pending = self._pending
        if self._status != _CONNECTED:
            self._check_open(len(frame))
            self._schedule_flush()
        elif not pending:
            self._schedule_flush()
        stats = self.stats
        stats["out_msgs"] += 1
        stats["out_bytes"] += size
        pending.append(frame)
        self._pending_data_size += len(frame)

    def _check_open(self, size: int) -> None:
        if self.is_closed or self.is_draining_pubs:
            raise ConnectionLostError("the connection is closed")
        if not self.is_connected and size + self._pending_data_size > self._max_pending_size:
            raise ConnectionLostError("the server is away, and the buffer for what should be sent is full")

    def _enqueue(self, frame: bytes) -> None:
        if not self._pending or self._status != _CONNECTED:
            self._schedule_flush()
        self._pending.append(frame)
        self._pending_data_size += len(frame)

    def _schedule_flush(self) -> None:
        """Let the flusher write all pending frames as one buffer when the loop next turns.

        Behind pending frames of a live connection it is scheduled already; nats-py does so after a reconnect.
        """
        queue = self._flush_queue
        if queue is not None and queue.empty() and self.is_connected:
            queue.put_nowait(asyncio.get_running_loop().create_future())

    @property
    def congested(self) -> bool:
        """True if more bytes wait to be written than the connection's limit."""
        return self._pending_data_size > self._max_pending_size

    async def relieve(self, timeout: float) -> None:
        """Wait until the socket has accepted the pending bytes.

        Raises:
            RequestTimeoutError: it did not in time; nothing is lost, it is still waiting.
        """
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(0)
        while self.congested:
            await asyncio.sleep(0.002)
            if asyncio.get_running_loop().time() - begun > timeout:
                raise RequestTimeoutError(f"the server has taken nothing for {timeout} s", code=408)

    # -- requests: one inbox for all answers

    def ask(self, waiter: Waiter, payload: bytes = b"", headers: HeaderInput | None = None) -> bytes:
        """Send a request and register the waiter; return its token. The caller sets the time limit.

        Raises:
            PermissionDeniedError: the user may not subscribe to the answers.
        """
        if self._answers_denied is not None:
            raise self._answers_denied
        self._counter += 1
        token = b"%x" % self._counter
        self.send_to(_checked(waiter.subject), payload, self._answers_to + token, headers)
        self._waiting[token] = waiter
        return token

    def waiting(self, kind: type[WaiterT]) -> Iterator[tuple[bytes, WaiterT]]:
        """Yield the tokens and waiters of this type that have no answer yet, in the order of their requests."""
        for token, waiter in self._waiting.items():
            if type(waiter) is kind:
                yield token, waiter

    def give_up(self, token: bytes) -> Waiter | None:
        """Forget a request; a late answer is dropped."""
        return self._waiting.pop(token, None)

    def _answered(self, frames: Sequence[Frame]) -> None:
        waiting, begin = self._waiting, len(self._answers_to)
        for subject, _, headers, data in frames:
            waiter = waiting.pop(subject[begin:], None)
            if waiter is None:
                continue
            if headers and not data:
                status = Status.of(headers, data)
                if status is not None and status.code == NO_RESPONDERS:
                    waiter.fail(NoRespondersError(waiter.subject))
                    continue
            waiter.settle(headers, data)

    def fail_requests(self, failure: TurnoutError) -> None:
        """Fail every pending request; its answer can no longer arrive."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            waiter.fail(failure)

    def _deny(self, failure: PermissionDeniedError) -> None:
        """Fail what waits for a denied subject before its timeout: requests, or the subscription to their answers."""
        publishing = failure.operation == "publish"
        unanswerable = not publishing and failure.subject.encode() == self._answers_to + b"*"
        if unanswerable:
            self._answers_denied = failure
        for token, waiter in tuple(self._waiting.items()):
            if unanswerable or (publishing and waiter.subject == failure.subject):
                del self._waiting[token]
                waiter.fail(failure)
        for call in tuple(self._denial_handlers.get(failure.subject, ())):
            call(failure)

    def on_denied(self, subject: str, call: Callable[[PermissionDeniedError], None]) -> Callable[[], None]:
        """Call when the server denies this user to publish or to subscribe to a subject; return what ends that."""
        handlers = self._denial_handlers.setdefault(subject, [])
        handlers.append(call)

        def forget() -> None:
            handlers.remove(call)
            if not handlers and self._denial_handlers.get(subject) is handlers:
                del self._denial_handlers[subject]

        return forget

    async def ask_and_wait(
        self, subject: str, payload: bytes = b"", *, timeout: float, headers: HeaderInput | None = None
    ) -> Reply:
        """A request and its answer.

        Raises:
            NoRespondersError: the subject has no subscribers.
            RequestTimeoutError: no answer in *timeout* seconds.
            PermissionDeniedError: the server does not let us publish there, or subscribe to the answer.
        """
        waiter = PendingRequest(subject, asyncio.get_running_loop().create_future())
        token = self.ask(waiter, payload, headers)
        try:
            async with asyncio.timeout(timeout):
                return await waiter.future
        except TimeoutError as late:
            if isinstance(late, TurnoutError):
                raise
            raise RequestTimeoutError(
                f"no answer on {subject!r} in {timeout:g} s: the server is away, or an import is missing", code=408
            ) from None
        finally:
            self.give_up(token)


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

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
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

    async def pages(self, subject: str, key: str, body: JsonMapping | None = None) -> AsyncIterator[DynamicValue]:
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
