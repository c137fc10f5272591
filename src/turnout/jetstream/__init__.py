"""An asynchronous JetStream client that keeps ADR-15 (subscribe workflow) and ADR-19 (API prefixes)."""

from turnout.jetstream.consumer_config import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, ReplayPolicy
from turnout.jetstream.context import JetStream, connect
from turnout.jetstream.message import Message
from turnout.jetstream.publish import Expect, PubAck
from turnout.jetstream.pull import PullOptions
from turnout.jetstream.reply import JSAck
from turnout.jetstream.stream_config import StorageType, StreamConfig, StreamInfo
from turnout.jetstream.subscription import Delivery

__all__ = [
    "AckPolicy",
    "ConsumerConfig",
    "ConsumerInfo",
    "DeliverPolicy",
    "Delivery",
    "Expect",
    "JSAck",
    "JetStream",
    "Message",
    "PubAck",
    "PullOptions",
    "ReplayPolicy",
    "StorageType",
    "StreamConfig",
    "StreamInfo",
    "connect",
]
