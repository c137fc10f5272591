"""An asynchronous JetStream client that keeps ADR-15 (subscribe workflow) and ADR-19 (API prefixes)."""

try:
    import nats as _nats  # noqa: F401 - only to say which extra is missing
except ModuleNotFoundError as missing:
    if missing.name != "nats":
        raise
    from turnout.errors import MissingExtraError as _MissingExtraError

    raise _MissingExtraError("jetstream", "nats") from None

from turnout.jetstream._connect import connect
from turnout.jetstream.cluster_info import ClusterInfo, PeerInfo
from turnout.jetstream.consumer import Consumer, PullSubscription
from turnout.jetstream.consumer_config import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, ReplayPolicy
from turnout.jetstream.context import JetStream
from turnout.jetstream.fetch import Batch
from turnout.jetstream.kv import KeyValue
from turnout.jetstream.kv_config import KeyValueConfig
from turnout.jetstream.kv_watch import Entry, Operation, Watcher, WatchOptions
from turnout.jetstream.message import Message
from turnout.jetstream.object_info import ObjectInfo, ObjectMeta, ObjectStoreConfig
from turnout.jetstream.objects import ObjectStore
from turnout.jetstream.ordered import OrderedSubscription
from turnout.jetstream.publish import Expect, PubAck
from turnout.jetstream.pull import PullMessages, PullOptions
from turnout.jetstream.stream import Stream
from turnout.jetstream.stream_config import (
    DiscardPolicy,
    External,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
    StreamSource,
)
from turnout.jetstream.subscription import Delivery, PushSubscription
from turnout.protocol.positions import JSAck
from turnout.protocol.prefix import Prefix
from turnout.protocol.status import Status

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
