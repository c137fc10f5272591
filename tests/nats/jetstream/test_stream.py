"""Messages of a stream, read without a consumer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.nats.jetstream.support import asynchronous, fresh, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import KeyValueConfig, StreamConfig, StreamSource, connect
from turnout.nats.jetstream.errors import StreamNameInUseError


@asynchronous
async def test_a_message_that_is_got_directly_has_its_own_place(nats_server: NatsServer) -> None:
    """Headers of the same names that it was stored with, of any length, are not taken for the server's."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_direct=True)
        forged = {"Nats-Sequence": "9" * 5000, "Nats-Subject": "other", "Nats-Time-Stamp": "yesterday"}
        await js.publish(f"{subject}.a", b"data", headers=forged)

        message = await stream.get_message(1)

        assert (message.sequence, message.subject, message.data) == (1, f"{subject}.a", b"data")


@asynchronous
async def test_the_same_stream_again(nats_server: NatsServer) -> None:
    """What the server kept in place of the values, or the order of subjects and sources, makes no other stream."""
    async with connect(nats_server.url) as js:
        one, two = (await stream_of_messages(js))[0], (await stream_of_messages(js))[0]
        name = fresh()
        subjects = [f"{name}.a", f"{name}.b"]
        sources = [StreamSource(name=one.name, opt_start_seq=1), StreamSource(name=two.name, opt_start_seq=1)]
        config = StreamConfig(
            name=name, subjects=subjects, sources=sources, storage="memory", max_age=200 / 3, max_msgs=0,
            max_msgs_per_subject=0, num_replicas=0, duplicate_window=0,
        )  # fmt: skip
        await js.create_stream(config)
        for again in (config, replace(config, subjects=subjects[::-1]), replace(config, sources=sources[::-1])):
            assert (await js.create_stream(again)).cached_info.config.subjects == tuple(subjects)
        for other in (replace(config, subjects=subjects[:1]), replace(config, subjects=subjects[::-1], max_msgs=5)):
            with pytest.raises(StreamNameInUseError):
                await js.create_stream(other)

        bucket = KeyValueConfig(bucket=name, ttl=1000 / 3, limit_marker_ttl=7, sources=sources)
        sourced = [replace(source, name=f"KV_{source.name}") for source in sources]
        for source in sourced:
            await js.create_stream(StreamConfig(name=source.name, storage="memory"))
        await js.create_key_value(bucket)
        await js.create_key_value(replace(bucket, sources=sources[::-1]))
