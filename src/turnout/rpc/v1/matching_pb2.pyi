from turnout.rpc.v1 import subscriptions_pb2 as _subscriptions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MatchRequest(_message.Message):
    __slots__ = ("metadata", "explain", "tag", "lists")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ListsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Values
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    metadata: _containers.ScalarMap[str, str]
    explain: bool
    tag: str
    lists: _containers.MessageMap[str, Values]
    def __init__(self, metadata: _Optional[_Mapping[str, str]] = ..., explain: _Optional[bool] = ..., tag: _Optional[str] = ..., lists: _Optional[_Mapping[str, Values]] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class MatchResponse(_message.Message):
    __slots__ = ("matches", "revision", "tag")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[Match]
    revision: int
    tag: str
    def __init__(self, matches: _Optional[_Iterable[_Union[Match, _Mapping]]] = ..., revision: _Optional[int] = ..., tag: _Optional[str] = ...) -> None: ...

class Match(_message.Message):
    __slots__ = ("subscription_id", "destinations", "condition_ids", "explanation")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_IDS_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    destinations: _containers.RepeatedScalarFieldContainer[str]
    condition_ids: _containers.RepeatedScalarFieldContainer[str]
    explanation: Explanation
    def __init__(self, subscription_id: _Optional[str] = ..., destinations: _Optional[_Iterable[str]] = ..., condition_ids: _Optional[_Iterable[str]] = ..., explanation: _Optional[_Union[Explanation, _Mapping]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("subscription_id", "metadata", "lists")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ListsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Values
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Values, _Mapping]] = ...) -> None: ...
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    metadata: _containers.ScalarMap[str, str]
    lists: _containers.MessageMap[str, Values]
    def __init__(self, subscription_id: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., lists: _Optional[_Mapping[str, Values]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("matched", "explanation", "condition", "inactive")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    INACTIVE_FIELD_NUMBER: _ClassVar[int]
    matched: bool
    explanation: Explanation
    condition: _subscriptions_pb2.ConditionOutput
    inactive: str
    def __init__(self, matched: _Optional[bool] = ..., explanation: _Optional[_Union[Explanation, _Mapping]] = ..., condition: _Optional[_Union[_subscriptions_pb2.ConditionOutput, _Mapping]] = ..., inactive: _Optional[str] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("condition_id", "text", "holds", "reason", "children")
    CONDITION_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    condition_id: str
    text: str
    holds: bool
    reason: str
    children: _containers.RepeatedCompositeFieldContainer[Explanation]
    def __init__(self, condition_id: _Optional[str] = ..., text: _Optional[str] = ..., holds: _Optional[bool] = ..., reason: _Optional[str] = ..., children: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: int
    def __init__(self, since: _Optional[int] = ...) -> None: ...

class Changes(_message.Message):
    __slots__ = ("revision", "created", "deleted_ids", "reset", "more")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_IDS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    revision: int
    created: _containers.RepeatedCompositeFieldContainer[_subscriptions_pb2.Subscription]
    deleted_ids: _containers.RepeatedScalarFieldContainer[str]
    reset: bool
    more: bool
    def __init__(self, revision: _Optional[int] = ..., created: _Optional[_Iterable[_Union[_subscriptions_pb2.Subscription, _Mapping]]] = ..., deleted_ids: _Optional[_Iterable[str]] = ..., reset: _Optional[bool] = ..., more: _Optional[bool] = ...) -> None: ...

class CreateLinesRequest(_message.Message):
    __slots__ = ("lines",)
    LINES_FIELD_NUMBER: _ClassVar[int]
    lines: bytes
    def __init__(self, lines: _Optional[bytes] = ...) -> None: ...

class CreateManyResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteManyRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteManyResponse(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("created", "updated", "deleted")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    created: _containers.RepeatedCompositeFieldContainer[_subscriptions_pb2.Subscription]
    updated: _containers.RepeatedCompositeFieldContainer[_subscriptions_pb2.Subscription]
    deleted: _containers.RepeatedCompositeFieldContainer[Deletion]
    def __init__(self, created: _Optional[_Iterable[_Union[_subscriptions_pb2.Subscription, _Mapping]]] = ..., updated: _Optional[_Iterable[_Union[_subscriptions_pb2.Subscription, _Mapping]]] = ..., deleted: _Optional[_Iterable[_Union[Deletion, _Mapping]]] = ...) -> None: ...

class Deletion(_message.Message):
    __slots__ = ("id", "revision")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    revision: int
    def __init__(self, id: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("metadata", "key", "pattern", "partial", "leaf", "kind", "destination", "text", "enabled")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    metadata: _containers.ScalarMap[str, str]
    key: str
    pattern: str
    partial: bool
    leaf: str
    kind: str
    destination: str
    text: str
    enabled: bool
    def __init__(self, metadata: _Optional[_Mapping[str, str]] = ..., key: _Optional[str] = ..., pattern: _Optional[str] = ..., partial: _Optional[bool] = ..., leaf: _Optional[str] = ..., kind: _Optional[str] = ..., destination: _Optional[str] = ..., text: _Optional[str] = ..., enabled: _Optional[bool] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("query", "cursor", "limit")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    query: Query
    cursor: str
    limit: int
    def __init__(self, query: _Optional[_Union[Query, _Mapping]] = ..., cursor: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ReplaceRequest(_message.Message):
    __slots__ = ("options", "lines")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    options: ReplaceOptions
    lines: bytes
    def __init__(self, options: _Optional[_Union[ReplaceOptions, _Mapping]] = ..., lines: _Optional[bytes] = ...) -> None: ...

class ReplaceOptions(_message.Message):
    __slots__ = ("set", "prefix", "prune", "prune_all", "dry_run", "route", "last")
    SET_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    PRUNE_ALL_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    set: str
    prefix: str
    prune: bool
    prune_all: bool
    dry_run: bool
    route: str
    last: int
    def __init__(self, set: _Optional[str] = ..., prefix: _Optional[str] = ..., prune: _Optional[bool] = ..., prune_all: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., route: _Optional[str] = ..., last: _Optional[int] = ...) -> None: ...

class ReplaceResponse(_message.Message):
    __slots__ = ("revision", "added", "changed", "removed", "unchanged", "kept", "adopted", "effect")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    revision: int
    added: _containers.RepeatedScalarFieldContainer[str]
    changed: _containers.RepeatedCompositeFieldContainer[Changed]
    removed: _containers.RepeatedScalarFieldContainer[str]
    unchanged: int
    kept: int
    adopted: _containers.RepeatedScalarFieldContainer[str]
    effect: Effect
    def __init__(self, revision: _Optional[int] = ..., added: _Optional[_Iterable[str]] = ..., changed: _Optional[_Iterable[_Union[Changed, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ..., unchanged: _Optional[int] = ..., kept: _Optional[int] = ..., adopted: _Optional[_Iterable[str]] = ..., effect: _Optional[_Union[Effect, _Mapping]] = ...) -> None: ...

class Changed(_message.Message):
    __slots__ = ("id", "fields")
    ID_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ...) -> None: ...

class Effect(_message.Message):
    __slots__ = ("records", "changed", "gained", "lost", "gainers", "losers")
    class GainersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LosersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    GAINED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    GAINERS_FIELD_NUMBER: _ClassVar[int]
    LOSERS_FIELD_NUMBER: _ClassVar[int]
    records: int
    changed: int
    gained: int
    lost: int
    gainers: _containers.ScalarMap[str, int]
    losers: _containers.ScalarMap[str, int]
    def __init__(self, records: _Optional[int] = ..., changed: _Optional[int] = ..., gained: _Optional[int] = ..., lost: _Optional[int] = ..., gainers: _Optional[_Mapping[str, int]] = ..., losers: _Optional[_Mapping[str, int]] = ...) -> None: ...

class EditManyRequest(_message.Message):
    __slots__ = ("query", "everything", "enabled", "keep_paused", "metadata", "without", "dry_run")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUERY_FIELD_NUMBER: _ClassVar[int]
    EVERYTHING_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    KEEP_PAUSED_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    query: Query
    everything: bool
    enabled: bool
    keep_paused: bool
    metadata: _containers.ScalarMap[str, str]
    without: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, query: _Optional[_Union[Query, _Mapping]] = ..., everything: _Optional[bool] = ..., enabled: _Optional[bool] = ..., keep_paused: _Optional[bool] = ..., metadata: _Optional[_Mapping[str, str]] = ..., without: _Optional[_Iterable[str]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class EditManyResponse(_message.Message):
    __slots__ = ("revision", "found", "ids")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    found: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revision: _Optional[int] = ..., found: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RevisionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RevisionResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ChangesRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: int
    def __init__(self, since: _Optional[int] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AsOfRequest(_message.Message):
    __slots__ = ("revision", "time")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    revision: int
    time: int
    def __init__(self, revision: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class PastRequest(_message.Message):
    __slots__ = ("revision", "id")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    revision: int
    id: str
    def __init__(self, revision: _Optional[int] = ..., id: _Optional[str] = ...) -> None: ...

class BirthsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BirthsPart(_message.Message):
    __slots__ = ("births",)
    BIRTHS_FIELD_NUMBER: _ClassVar[int]
    births: _containers.RepeatedCompositeFieldContainer[Birth]
    def __init__(self, births: _Optional[_Iterable[_Union[Birth, _Mapping]]] = ...) -> None: ...

class Birth(_message.Message):
    __slots__ = ("id", "revision", "time")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    id: str
    revision: int
    time: int
    def __init__(self, id: _Optional[str] = ..., revision: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("revision", "time", "actor", "before", "after")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    revision: int
    time: int
    actor: str
    before: _subscriptions_pb2.Subscription
    after: _subscriptions_pb2.Subscription
    def __init__(self, revision: _Optional[int] = ..., time: _Optional[int] = ..., actor: _Optional[str] = ..., before: _Optional[_Union[_subscriptions_pb2.Subscription, _Mapping]] = ..., after: _Optional[_Union[_subscriptions_pb2.Subscription, _Mapping]] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("revision", "subscriptions")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[_subscriptions_pb2.Subscription]
    def __init__(self, revision: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[_subscriptions_pb2.Subscription, _Mapping]]] = ...) -> None: ...
