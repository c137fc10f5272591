"""NATS over plain blocking sockets: reads and writes streams at full speed in Spark tasks.

It depends on the standard library, numpy and pyarrow, and so runs on an executor that has PySpark's own
dependencies. `turnout.nats.jetstream` is the other NATS package: asynchronous, over nats-py, for services.
"""

from typing import TYPE_CHECKING

from turnout.base.startup import names_at_first_use

if TYPE_CHECKING:
    from turnout.nats.protocol.options import ConnectionOptions
    from turnout.nats.wire.connection import Connection, Message
    from turnout.nats.wire.direct import DirectReader
    from turnout.nats.wire.publisher import Publisher
    from turnout.nats.wire.pull import PullReader, Range
    from turnout.nats.wire.streams import (
        Acknowledger,
        create_consumer,
        create_stream,
        delete_consumer,
        delete_stream,
        purge_stream,
        sample,
        stored_message,
        stream_info,
        streams_of,
        subject_counts,
    )

__all__ = [
    "Acknowledger",
    "Connection",
    "ConnectionOptions",
    "DirectReader",
    "Message",
    "Publisher",
    "PullReader",
    "Range",
    "create_consumer",
    "create_stream",
    "delete_consumer",
    "delete_stream",
    "purge_stream",
    "sample",
    "stored_message",
    "stream_info",
    "streams_of",
    "subject_counts",
]

__getattr__ = names_at_first_use(
    __name__,
    {
        "Acknowledger": "turnout.nats.wire.streams",
        "Connection": "turnout.nats.wire.connection",
        "ConnectionOptions": "turnout.nats.protocol.options",
        "DirectReader": "turnout.nats.wire.direct",
        "Message": "turnout.nats.wire.connection",
        "Publisher": "turnout.nats.wire.publisher",
        "PullReader": "turnout.nats.wire.pull",
        "Range": "turnout.nats.wire.pull",
        "create_consumer": "turnout.nats.wire.streams",
        "create_stream": "turnout.nats.wire.streams",
        "delete_consumer": "turnout.nats.wire.streams",
        "delete_stream": "turnout.nats.wire.streams",
        "purge_stream": "turnout.nats.wire.streams",
        "sample": "turnout.nats.wire.streams",
        "stored_message": "turnout.nats.wire.streams",
        "stream_info": "turnout.nats.wire.streams",
        "streams_of": "turnout.nats.wire.streams",
        "subject_counts": "turnout.nats.wire.streams",
    },
)
