"""NATS over plain blocking sockets: reads and writes streams at full speed in Spark tasks.

It depends on the standard library, numpy and pyarrow, and so runs on an executor that has PySpark's own
dependencies. `turnout.nats.jetstream` is the other NATS package: asynchronous, over nats-py, for services.
"""

from turnout.nats.protocol.options import ConnectionOptions
from turnout.nats.wire.acknowledger import Acknowledger
from turnout.nats.wire.connection import Connection, Message
from turnout.nats.wire.direct import DirectReader
from turnout.nats.wire.publisher import Publisher
from turnout.nats.wire.pull import PullReader, Range
from turnout.nats.wire.streams import (
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
