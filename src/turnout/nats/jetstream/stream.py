"""A stream: its state, its messages and its consumers."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from turnout.base.untrusted import JsonMapping, JsonObject, decimal
from turnout.nats.jetstream.config import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    External,
    RawMessage,
    StreamConfig,
    StreamInfo,
    StreamSource,
    decode,
    encode,
)
from turnout.nats.jetstream.connection import Api, check_name
from turnout.nats.jetstream.consumer import Consumer
from turnout.nats.jetstream.errors import ConsumerExistsError, MessageNotFoundError, PushConsumerError, StreamError
from turnout.nats.jetstream.subscribe import create_consumer
from turnout.nats.protocol.headers import ADDED_BY_DIRECT_GETS, NO_MESSAGES, Status, parse_table


def _placed(source: StreamSource) -> StreamSource:
    """Return a source with its domain replaced by the corresponding API prefix."""
    if source.domain is None:
        return source
    return replace(source, domain=None, external=source.external or External(api=f"$JS.{source.domain}.API"))


def stream_body(config: StreamConfig) -> JsonObject:
    """The JSON of a stream's configuration."""
    return encode(
        replace(
            config,
            mirror=_placed(config.mirror) if config.mirror else None,
            sources=tuple(_placed(source) for source in config.sources) if config.sources else None,
        )
    )


_NOT_STORED: Final = frozenset({10037, 10043, 10057})
"""Codes of the server for a message that cannot be removed, as it is not there."""


class Stream:
    """A stream of a JetStream; made by `JetStream.stream` and its kin.

    Attributes:
        name: its name.
        cached_info: the server's last answer about it.
    """

    def __init__(self, api: Api, name: str, info: StreamInfo) -> None:
        self._api = api
        self.name = name
        self.cached_info = info

    async def info(self, *, subjects: str | None = None, deleted: bool = False) -> StreamInfo:
        """Request the stream's current state from the server.

        Args:
            subjects: a filter: how many messages each matching subject has, in ``state.subjects``.
            deleted: list the deleted sequences in ``state.deleted``.

        Raises:
            StreamNotFoundError: it no longer exists.
        """
        body: JsonObject = {}
        if subjects is not None:
            body["subjects_filter"] = subjects
        if deleted:
            body["deleted_details"] = True
        stream_info = decode(StreamInfo, await self._api.call(f"STREAM.INFO.{self.name}", body or None))
        while subjects is not None and stream_info.state.subjects:
            # Many subjects are returned in pages.
            body["offset"] = len(stream_info.state.subjects)
            if body["offset"] >= int(stream_info.extra.get("total", 0)):
                break
            page = decode(StreamInfo, await self._api.call(f"STREAM.INFO.{self.name}", body))
            if not page.state.subjects:
                break
            merged = {**stream_info.state.subjects, **page.state.subjects}
            stream_info = replace(stream_info, state=replace(stream_info.state, subjects=merged))
        self.cached_info = stream_info
        return stream_info

    async def purge(self, subject: str | None = None, *, keep: int | None = None, sequence: int | None = None) -> int:
        """Remove messages: all, a subject's, all except the last *keep*, or all before *sequence*.

        Returns:
            How many were removed.
        """
        body = {"filter": subject, "keep": keep, "seq": sequence}
        request = {name: value for name, value in body.items() if value is not None}
        answer = await self._api.call(f"STREAM.PURGE.{self.name}", request or None)
        return int(answer.get("purged", 0))

    async def delete_message(self, sequence: int, *, secure: bool = False) -> None:
        """Remove one message; with *secure*, overwrite its data on the disk.

        Raises:
            StreamError: there is none with that sequence.
        """
        body: JsonObject = {"seq": sequence}
        if not secure:
            body["no_erase"] = True
        await self._api.call(f"STREAM.MSG.DELETE.{self.name}", body)

    async def get_message(self, sequence: int, *, next_by_subject: str | None = None) -> RawMessage:
        """The message with a sequence; or the first from there on with a subject.

        Raises:
            MessageNotFoundError: there is none.
        """
        body: JsonObject = {"seq": sequence}
        if next_by_subject is not None:
            body["next_by_subj"] = next_by_subject
        if self._direct:
            return await self._get_direct(f"DIRECT.GET.{self.name}", body)
        return await self._get_stored(body)

    async def get_last_message(self, subject: str) -> RawMessage:
        """The last message with a subject.

        Raises:
            MessageNotFoundError: there is none.
        """
        if self._direct:
            if subject.isprintable() and " " not in subject:
                return await self._get_direct(f"DIRECT.GET.{self.name}.{subject}", None)
            return await self._get_direct(f"DIRECT.GET.{self.name}", {"last_by_subj": subject})
        return await self._get_stored({"last_by_subj": subject})

    @property
    def _direct(self) -> bool:
        return bool(self.cached_info.config.allow_direct or self.cached_info.config.mirror_direct)

    async def get_messages(self, sequences: Sequence[int]) -> list[RawMessage | None]:
        """The messages with some sequences, all requested together; None for those that the stream has not.

        The leader answers, also where the stream allows direct gets: a replica may be behind it.

        Raises:
            StreamError: they may not be read.
            RequestTimeoutError: not all answers came in time.
        """
        subject = f"STREAM.MSG.GET.{self.name}"
        found: list[RawMessage | None] = []
        for answer in await self._api.call_each(subject, [{"seq": sequence} for sequence in sequences]):
            if isinstance(answer, StreamError) and not isinstance(answer, MessageNotFoundError):
                raise answer
            found.append(None if isinstance(answer, StreamError) else _stored(answer))
        return found

    async def delete_messages(self, sequences: Sequence[int]) -> None:
        """Remove messages, all requested together; those that are not there are no error.

        Raises:
            StreamError: they may not be removed.
            RequestTimeoutError: not all answers came in time.
        """
        bodies = [{"seq": sequence, "no_erase": True} for sequence in sequences]
        for answer in await self._api.call_each(f"STREAM.MSG.DELETE.{self.name}", bodies):
            if isinstance(answer, StreamError) and answer.err_code not in _NOT_STORED:
                raise answer

    async def _get_stored(self, body: JsonObject) -> RawMessage:
        return _stored(await self._api.call(f"STREAM.MSG.GET.{self.name}", body))

    async def _get_direct(self, subject: str, body: JsonObject | None) -> RawMessage:
        """Send a direct get: any replica answers, with the raw message and its position in headers."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer = await self._api.raw(subject, payload)
        status = Status.of(answer.raw_headers, answer.data)
        if status is not None and status.code:
            kind = MessageNotFoundError if status.code == NO_MESSAGES else StreamError
            raise kind(f"{subject}: {status.description or status.code}", code=status.code, err_code=10037)
        headers = parse_table(answer.raw_headers)
        # The server adds its own behind the message's own.
        added = {name: headers.pop(name, [""])[-1] for name in ADDED_BY_DIRECT_GETS}
        return RawMessage(
            subject=added["Nats-Subject"],
            sequence=decimal(added["Nats-Sequence"]) or 0,
            data=answer.data,
            headers=headers,
            time=_time(added["Nats-Time-Stamp"]),
        )

    # -- consumers

    async def create_consumer(self, config: ConsumerConfig) -> Consumer:
        """Make a pull consumer, named by the library if the configuration does not name it.

        Raises:
            ConsumerExistsError: there is another one of that name, with another configuration.
        """
        return await self._put_consumer(config, "create")

    async def update_consumer(self, config: ConsumerConfig) -> Consumer:
        """Change a consumer.

        Raises:
            StreamError: there is none of that name (10149), or the field cannot change (10012).
        """
        return await self._put_consumer(config, "update")

    async def create_or_update_consumer(self, config: ConsumerConfig) -> Consumer:
        """Make a consumer, or change the one that has the name."""
        return await self._put_consumer(config, "")

    async def _put_consumer(self, config: ConsumerConfig, action: str) -> Consumer:
        name = config.name or config.durable_name or self._api.connection.unique()
        check_name("config.name", name)
        full = replace(config, name=name, ack_policy=config.ack_policy or AckPolicy.EXPLICIT)
        try:
            info = await create_consumer(self._api, self.name, full, action=action)
        except ConsumerExistsError:
            # The server compares lists in their order, which means nothing here.
            found = (await self._api.consumer_info(self.name, name)).config.filter_subjects
            if not full.filter_subjects or not _reordered(full.filter_subjects, found):
                raise
            info = await create_consumer(self._api, self.name, replace(full, filter_subjects=found), action=action)
        return Consumer(self._api, self.name, info.name, info)

    async def consumer(self, name: str) -> Consumer:
        """A pull consumer that exists.

        Raises:
            ConsumerNotFoundError: there is none of that name.
            PushConsumerError: it is a push consumer; use `JetStream.subscribe`.
        """
        info = await self.consumer_info(name)
        if info.config.is_push:
            raise PushConsumerError(f"the consumer {name!r} is a push consumer: it cannot be pulled from")
        return Consumer(self._api, self.name, name, info)

    async def consumer_info(self, name: str) -> ConsumerInfo:
        """The configuration and state of a consumer of either kind.

        Raises:
            ConsumerNotFoundError: there is none of that name.
        """
        return await self._api.consumer_info(self.name, check_name("name", name))

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer.

        Raises:
            ConsumerNotFoundError: there is none of that name.
        """
        await self._api.delete_consumer(self.name, check_name("name", name))

    async def reset_consumer(self, name: str, sequence: int | None = None) -> int:
        """Let a consumer of either kind deliver again; see `Consumer.reset`.

        Raises:
            ConsumerResetError: it cannot deliver from there.
            ConsumerNotFoundError: there is none of that name.
        """
        return (await self._api.reset_consumer(self.name, check_name("name", name), sequence))[1]

    async def consumer_names(self) -> list[str]:
        """The names of all its consumers."""
        return [str(name) async for name in self._api.pages(f"CONSUMER.NAMES.{self.name}", "consumers")]

    async def consumers(self) -> AsyncIterator[ConsumerInfo]:
        """Every consumer."""
        async for item in self._api.pages(f"CONSUMER.LIST.{self.name}", "consumers"):
            yield decode(ConsumerInfo, item)


def _stored(answer: JsonMapping) -> RawMessage:
    """Return the message in an answer of the API."""
    message = answer["message"]
    raw = base64.b64decode(message.get("hdrs") or "")
    return RawMessage(
        subject=message["subject"],
        sequence=message["seq"],
        data=base64.b64decode(message.get("data") or ""),
        headers=parse_table(raw) if raw else {},
        time=_time(message.get("time", "")),
    )


def _time(text: str) -> datetime | None:
    return decode(StreamInfo, {"ts": text}).ts if text else None


def _reordered(requested: Sequence[object], found: Sequence[object] | None) -> bool:
    """Return True if two lists have the same items in different orders."""
    return list(requested) != list(found or ()) and sorted(map(repr, requested)) == sorted(map(repr, found or ()))


def in_order_of(config: StreamConfig, found: StreamConfig) -> StreamConfig | None:
    """Return a configuration with its subjects and sources in the order of another; None if that changes nothing."""
    orders: dict[str, Any] = {}
    if config.subjects and _reordered(config.subjects, found.subjects):
        orders["subjects"] = found.subjects
    if config.sources and _reordered([_placed(source) for source in config.sources], found.sources):
        orders["sources"] = found.sources
    return replace(config, **orders) if orders else None


async def open_stream(api: Api, name: str) -> Stream:
    """A stream that exists.

    Raises:
        StreamNotFoundError: there is none of that name.
    """
    check_name("stream", name)
    return Stream(api, name, decode(StreamInfo, await api.call(f"STREAM.INFO.{name}")))
