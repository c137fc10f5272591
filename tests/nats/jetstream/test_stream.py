"""Messages of a stream, read without a consumer."""

from __future__ import annotations

from tests.nats.jetstream.support import asynchronous, stream_of_messages

from turnout.embedded import NatsServer
from turnout.nats.jetstream import connect


@asynchronous
async def test_a_message_that_is_got_directly_has_its_own_place(nats_server: NatsServer) -> None:
    """Headers of the same names that it was stored with, of any length, are not taken for the server's."""
    async with connect(nats_server.url) as js:
        stream, subject = await stream_of_messages(js, allow_direct=True)
        forged = {"Nats-Sequence": "9" * 5000, "Nats-Subject": "other", "Nats-Time-Stamp": "yesterday"}
        await js.publish(f"{subject}.a", b"data", headers=forged)

        message = await stream.get_message(1)

        assert (message.sequence, message.subject, message.data) == (1, f"{subject}.a", b"data")
