"""One message of a stream by its sequence."""

from __future__ import annotations

import pytest

from turnout.errors import StreamError
from turnout.nats.wire import Connection, PullReader, Range, create_stream, stored_message


def test_a_message_is_as_a_reader_of_the_stream_sees_it(nats_server) -> None:
    """The same subject, sequence, headers, payload and time, to the microsecond."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "STORED", "subjects": ["stored.>"], "storage": "memory"})
        connection.request("stored.a", b"plain")
        connection.request("stored.b", b"\x00\xff", {"Kind": "odd", "Nats-Msg-Id": "k"})

        (read,) = PullReader(connection, Range("STORED", 1, 3, ()), 0).batches()
        single = [stored_message(connection, "STORED", sequence).to_pylist()[0] for sequence in (1, 2)]

        assert single == read.to_pylist()


def test_a_message_that_is_not_there(nats_server) -> None:
    """The stream and the sequence are named."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "EMPTY", "subjects": ["empty"], "storage": "memory"})

        with pytest.raises(StreamError, match="the stream 'EMPTY' holds no message 5") as refused:
            stored_message(connection, "EMPTY", 5)

    assert refused.value.code == 404
