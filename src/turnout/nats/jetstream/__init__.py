"""An asynchronous JetStream client that keeps ADR-15 (subscribe workflow) and ADR-19 (API prefixes)."""

try:
    import nats as _nats  # noqa: F401 - only to say which extra is missing
except ModuleNotFoundError as missing:
    if missing.name != "nats":
        raise
    from turnout.errors import MissingExtraError as _MissingExtraError

    raise _MissingExtraError("jetstream", "nats") from None

from turnout.nats.jetstream.config import (
    AccountInfo,
    AccountLimits,
    AckPolicy,
    ClusterInfo,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    DiscardPolicy,
    External,
    PeerInfo,
    PersistMode,
    Placement,
    PriorityGroupState,
    PriorityPolicy,
    RawMessage,
    ReplayPolicy,
    RePublish,
    RetentionPolicy,
    SequenceInfo,
    StorageType,
    StoreCompression,
    StreamConfig,
    StreamConsumerLimits,
    StreamConsumerSource,
    StreamInfo,
    StreamSource,
    StreamSourceInfo,
    StreamState,
    SubjectTransformConfig,
)
from turnout.nats.jetstream.consumer import Consumer, Consuming, PullSubscription
from turnout.nats.jetstream.context import JetStream, connect
from turnout.nats.jetstream.kv import Entry, KeyValue, KeyValueConfig, Operation, Watcher, WatchOptions
from turnout.nats.jetstream.message import Message
from turnout.nats.jetstream.objects import ObjectInfo, ObjectLink, ObjectMeta, ObjectStore, ObjectStoreConfig
from turnout.nats.jetstream.ordered import OrderedSubscription
from turnout.nats.jetstream.publish import AtomicBatch, Expect, FastBatch, PubAck, PublishOptions, Schedule
from turnout.nats.jetstream.pull import Batch, PriorityGroup, PullMessages, PullOptions
from turnout.nats.jetstream.stream import Stream
from turnout.nats.jetstream.subscription import Delivery, PushSubscription
from turnout.nats.protocol.headers import Status
from turnout.nats.protocol.options import Prefix
from turnout.nats.protocol.positions import JSAck

__all__ = [
    "AccountInfo",
    "AccountLimits",
    "AckPolicy",
    "AtomicBatch",
    "Batch",
    "ClusterInfo",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "Consuming",
    "DeliverPolicy",
    "Delivery",
    "DiscardPolicy",
    "Entry",
    "Expect",
    "External",
    "FastBatch",
    "JSAck",
    "JetStream",
    "KeyValue",
    "KeyValueConfig",
    "Message",
    "ObjectInfo",
    "ObjectLink",
    "ObjectMeta",
    "ObjectStore",
    "ObjectStoreConfig",
    "Operation",
    "OrderedSubscription",
    "PeerInfo",
    "PersistMode",
    "Placement",
    "Prefix",
    "PriorityGroup",
    "PriorityGroupState",
    "PriorityPolicy",
    "PubAck",
    "PublishOptions",
    "PullMessages",
    "PullOptions",
    "PullSubscription",
    "PushSubscription",
    "RawMessage",
    "RePublish",
    "ReplayPolicy",
    "RetentionPolicy",
    "Schedule",
    "SequenceInfo",
    "Status",
    "StorageType",
    "StoreCompression",
    "Stream",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamConsumerSource",
    "StreamInfo",
    "StreamSource",
    "StreamSourceInfo",
    "StreamState",
    "SubjectTransformConfig",
    "WatchOptions",
    "Watcher",
    "connect",
]
