"""A pull consumer: fetch a batch, or take messages without a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Self

from turnout.errors import TurnoutError
from turnout.nats.jetstream._client import Frame
from turnout.nats.jetstream.config import AckPolicy, ConsumerInfo, PriorityPolicy
from turnout.nats.jetstream.connection import Api, Interest
from turnout.nats.jetstream.errors import NoRespondersError, PermissionDeniedError, RequestTimeoutError, StreamError
from turnout.nats.jetstream.message import Callback, Message
from turnout.nats.jetstream.pull import Batch, Pin, PriorityGroup, PullMessages, PullOptions, fetch


class Consuming:
    """A callback that is being fed; made by `Consumer.consume`."""

    def __init__(self, messages: PullMessages, task: asyncio.Task[None]) -> None:
        self._messages = messages
        self._task = task

    async def stop(self) -> None:
        """End it now; messages not handed over are returned to the server."""
        self._messages.stop()
        if self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def drain(self, timeout: float = 30.0) -> None:
        """Stop requesting, hand over the received messages, then end.

        Raises:
            RequestTimeoutError: it took longer than *timeout* seconds, and was stopped.
        """
        self._messages.drain()
        _, late = await asyncio.wait([self._task], timeout=timeout)
        if late:
            await self.stop()
            raise RequestTimeoutError(f"the drain took over {timeout:g} s", code=408)

    @property
    def running(self) -> bool:
        """True while messages are handed over."""
        return not self._task.done()


class Consumer:
    """A pull consumer of a stream.

    Args:
        api: the JetStream that has it.
        stream: its stream.
        name: its name.
        info: its configuration and state as last received, where known.
    """

    def __init__(self, api: Api, stream: str, name: str, info: ConsumerInfo | None = None) -> None:
        self._api = api
        self.stream = stream
        self.name = name
        self.cached_info = info
        self._acks_nothing = info is not None and info.config.ack_policy == AckPolicy.NONE
        self._open: set[PullMessages] = set()
        self._fetching = 0
        policy = info.config.priority_policy if info is not None else PriorityPolicy.PINNED_CLIENT
        self._pin = Pin(known=policy == PriorityPolicy.PINNED_CLIENT)

    @property
    def pin_id(self) -> str | None:
        """The id of this client's pin in a priority group; None while another client has it, or none is known."""
        return self._pin.id

    async def info(self) -> ConsumerInfo:
        """Request the consumer's current state from the server.

        Raises:
            ConsumerNotFoundError: it no longer exists.
        """
        self.cached_info = await self._api.consumer_info(self.stream, self.name)
        return self.cached_info

    async def fetch(
        self,
        batch: int,
        *,
        timeout: float = 5.0,
        no_wait: bool = False,
        max_bytes: int | None = None,
        heartbeat: float | None = None,
        group: PriorityGroup | None = None,
    ) -> Batch:
        """Fetch up to *batch* messages: arriving within *timeout* seconds, or already available with *no_wait*.

        *group* is required where the consumer has priority groups (ADR-42).

        An empty batch means that there was nothing; the statuses that say so are not shown (ADR-15). What ended a
        batch early after some messages is its `Batch.error`.

        Raises:
            StatusError: the server refused the request before any message; the status has the reason.
            ConsumerDeletedError: the consumer was deleted meanwhile.
            PinLostError: another client of the priority group has the pin; the next request waits for it.
            NoRespondersError: there is no such consumer.
        """
        self._fetching += 1
        try:
            return await fetch(
                self._api,
                self.stream,
                self.name,
                batch,
                timeout=timeout,
                no_wait=no_wait,
                max_bytes=max_bytes,
                heartbeat=heartbeat,
                acks_nothing=self._acks_nothing,
                group=group,
                pin=self._pin,
            )
        finally:
            self._fetching -= 1

    async def next(self, timeout: float = 5.0, *, group: PriorityGroup | None = None) -> Message:
        """Fetch one message.

        Raises:
            RequestTimeoutError: none arrived in *timeout* seconds.
        """
        batch = await self.fetch(1, timeout=timeout, group=group)
        if not batch:
            raise RequestTimeoutError(f"the consumer {self.name!r} had no message in {timeout:g} s", code=408)
        return batch[0]

    async def messages(self, options: PullOptions | None = None) -> PullMessages:
        """Messages without a pause: the next request is sent before the last one is used up."""
        opened = PullMessages(
            self._api, self.stream, self.name, options or PullOptions(), acks_nothing=self._acks_nothing, pin=self._pin
        )
        self._open.add(opened)
        opened.on_end(self._open.discard)
        try:
            return await opened.start()
        except BaseException:
            opened.stop()
            raise

    async def consume(self, callback: Callback, options: PullOptions | None = None) -> Consuming:
        """Feed *callback* with every message, one at a time; a final error is passed to the error callback."""
        messages = await self.messages(options)

        async def feed() -> None:
            try:
                await messages.run(callback)
            except Exception as failure:  # noqa: BLE001 - this task is not awaited: the error callback gets it
                self._api.connection.report(failure)
            finally:
                messages.stop()

        return Consuming(messages, asyncio.create_task(feed()))

    async def pause(self, until: datetime) -> None:
        """Deliver nothing until then."""
        moment = until.astimezone().isoformat()
        await self._api.call(f"CONSUMER.PAUSE.{self.stream}.{self.name}", {"pause_until": moment})

    async def resume(self) -> None:
        """Deliver again."""
        await self._api.call(f"CONSUMER.PAUSE.{self.stream}.{self.name}", {})

    async def unpin(self, group: str) -> None:
        """Let another client be the one that a priority group's messages go to."""
        await self._api.call(f"CONSUMER.UNPIN.{self.stream}.{self.name}", {"group": group})

    async def reset(self, sequence: int | None = None) -> int:
        """Deliver again from behind the acknowledged messages, or from a stream sequence; servers from 2.14.

        Messages that are not acknowledged count as never delivered. `PullMessages` and fetches continue.

        Returns:
            The stream sequence from which the consumer delivers; `cached_info` has its new state.

        Raises:
            ConsumerResetError: the sequence is before the consumer's start, or its deliver policy has no start.
            ConsumerNotFoundError: it no longer exists.
        """
        self.cached_info, begins = await self._api.reset_consumer(self.stream, self.name, sequence)
        return begins

    async def delete(self) -> None:
        """Delete the consumer.

        Raises:
            ConsumerNotFoundError: it no longer exists.
        """
        await self._api.delete_consumer(self.stream, self.name)

    def stop(self, reason: TurnoutError | None = None) -> None:
        """Stop all iterations and subscriptions of this object; they raise *reason*, or just end."""
        for messages in tuple(self._open):
            messages.stop(reason)


class PullSubscription(Consumer):
    """A pull consumer that a subscription found or made; made by `JetStream.pull_subscribe`.

    Unsubscribing deletes the consumer if the subscription made it (ADR-15, "Unsubscribe and Drain") and no other client
    uses it. Closing, which the end of a ``with`` block does, keeps a consumer that has a name.
    """

    def __init__(
        self,
        api: Api,
        stream: str,
        name: str,
        info: ConsumerInfo | None = None,
        *,
        owned: bool = False,
        ephemeral: bool = False,
    ) -> None:
        super().__init__(api, stream, name, info)
        self._owned = owned
        self._ephemeral = ephemeral
        self._member: Interest | None = None
        self._ended = False
        self._on_end: list[Callable[[PullSubscription], None]] = []

    async def join(self) -> Self:
        """Answer when another subscription asks whether the consumer is in use."""
        connection = self._api.connection
        subject = f"{connection.inbox_prefix}.members.{self._api.prefix.api(f'{self.stream}.{self.name}')}"

        def answer(frames: Sequence[Frame]) -> None:
            for _, reply, _, _ in frames:
                if reply:
                    connection.send_to(reply)

        self._member = await connection.listen(subject, answer)
        return self

    @property
    def owns_consumer(self) -> bool:
        """True if unsubscribing deletes the consumer."""
        return self._owned

    @property
    def consumer_name(self) -> str:
        """The consumer's name."""
        return self.name

    @property
    def closed(self) -> bool:
        """True once the subscription has ended."""
        return self._ended

    def on_end(self, call: Callable[[PullSubscription], None]) -> None:
        """Call when it has ended."""
        self._on_end.append(call)

    def end(self, reason: TurnoutError | None = None) -> None:
        """Remove the subscription from the connection and leave the consumer unchanged."""
        if not self._ended:
            self._ended = True
            self.stop(reason)
            if self._member is not None:
                self._api.connection.ignore(self._member)
            for call in self._on_end:
                call(self)

    def release(self) -> None:
        """End it without waiting, and let the deletion of an ephemeral consumer follow."""
        self.end()
        if self._owned and self._ephemeral and self._api.connection.is_connected:
            self._owned = False
            self._api.spawn(self._api.forget_consumer(self.stream, self.name))

    async def close(self) -> None:
        """Stop immediately; delete an ephemeral consumer that this subscription created, and keep one with a name.

        Raises:
            StreamError: the consumer could not be deleted.
        """
        self._owned = self._owned and self._ephemeral
        await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """Stop immediately, and delete the consumer if this subscription created it and no other client uses it.

        Raises:
            StreamError: the consumer could not be deleted.
        """
        if self._ended:
            return
        self.end()
        if self._owned:
            self._owned = False
            # Who asked for the deletion in so many words gets it.
            if self._ephemeral or not await self._used_by_others():
                await self.delete()

    async def _used_by_others(self) -> bool:
        """Return whether another subscription to the consumer answers, or another client's requests wait for messages.

        Raises:
            StreamError: the consumer cannot be looked up.
        """
        if self._member is not None:
            # Only the absence of subscriptions is answered at once: one that is slow to answer is one nevertheless.
            try:
                await self._api.connection.ask_and_wait(self._member.subject, timeout=min(self._api.timeout, 1.0))
            except (NoRespondersError, PermissionDeniedError):
                pass
            except RequestTimeoutError:
                return True
            else:
                return True
        return (await self.info()).num_waiting > self._fetching

    async def drain(self, timeout: float = 30.0, *, keep_named: bool = False) -> None:
        """Stop requesting, wait until received messages are taken, then delete the consumer as `unsubscribe` does.

        With *keep_named* a consumer that has a name is kept, as `close` does. Failures go to the error callback
        (ADR-15, "Drain").
        """
        if self._ended:
            return
        report = self._api.connection.report
        try:
            async with asyncio.timeout(timeout):
                for messages in tuple(self._open):
                    await messages.drained()
        except TimeoutError:
            report(RequestTimeoutError(f"the drain of {self.name!r} took over {timeout:g} s", code=408))
        except asyncio.CancelledError:
            self.release()
            raise
        try:
            await (self.close() if keep_named else self.unsubscribe())
        except (StreamError, ConnectionError) as failure:
            report(failure)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
