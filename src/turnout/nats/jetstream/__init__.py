"""An asynchronous JetStream client that keeps ADR-15 (subscribe workflow) and ADR-19 (API prefixes)."""

try:
    import nats as _nats  # noqa: F401 - only to say which extra is missing
except ModuleNotFoundError as missing:
    if missing.name != "nats":
        raise
    from turnout.errors import MissingExtraError as _MissingExtraError

    raise _MissingExtraError("jetstream", "nats") from None

from turnout.nats.jetstream.consumer import Consumer, PullSubscription
from turnout.nats.jetstream.consumer_config import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, ReplayPolicy
from turnout.nats.jetstream.context import JetStream, connect
from turnout.nats.jetstream.fetch import Batch
from turnout.nats.jetstream.kv import KeyValue, KeyValueConfig
from turnout.nats.jetstream.kv_watch import Entry, Operation, Watcher, WatchOptions
from turnout.nats.jetstream.message import Message
from turnout.nats.jetstream.object_info import ObjectInfo, ObjectMeta, ObjectStoreConfig
from turnout.nats.jetstream.objects import ObjectStore
from turnout.nats.jetstream.ordered import OrderedSubscription
from turnout.nats.jetstream.publish import Expect, PubAck
from turnout.nats.jetstream.pull import PullMessages, PullOptions
from turnout.nats.jetstream.stream import Stream
from turnout.nats.jetstream.stream_config import (
    ClusterInfo,
    DiscardPolicy,
    External,
    PeerInfo,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
    StreamSource,
)
from turnout.nats.jetstream.subscription import Delivery, PushSubscription
from turnout.nats.protocol.positions import JSAck
from turnout.nats.protocol.prefix import Prefix
from turnout.nats.protocol.status import Status

__all__ = [
    "AckPolicy",
    "Batch",
    "ClusterInfo",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "DeliverPolicy",
    "Delivery",
    "DiscardPolicy",
    "Entry",
    "Expect",
    "External",
    "JSAck",
    "JetStream",
    "KeyValue",
    "KeyValueConfig",
    "Message",
    "ObjectInfo",
    "ObjectMeta",
    "ObjectStore",
    "ObjectStoreConfig",
    "Operation",
    "OrderedSubscription",
    "PeerInfo",
    "Prefix",
    "PubAck",
    "PullMessages",
    "PullOptions",
    "PullSubscription",
    "PushSubscription",
    "ReplayPolicy",
    "RetentionPolicy",
    "Status",
    "StorageType",
    "Stream",
    "StreamConfig",
    "StreamInfo",
    "StreamSource",
    "WatchOptions",
    "Watcher",
    "connect",
]
