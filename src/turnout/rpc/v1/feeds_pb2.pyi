from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadRequest(_message.Message):
    __slots__ = ("start", "ack")
    START_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    start: Start
    ack: Acknowledgement
    def __init__(self, start: _Optional[_Union[Start, _Mapping]] = ..., ack: _Optional[_Union[Acknowledgement, _Mapping]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("subscription_id", "limit", "route", "reader", "after", "follow")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    limit: int
    route: str
    reader: str
    after: str
    follow: bool
    def __init__(self, subscription_id: _Optional[str] = ..., limit: _Optional[int] = ..., route: _Optional[str] = ..., reader: _Optional[str] = ..., after: _Optional[str] = ..., follow: _Optional[bool] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    def __init__(self, cursor: _Optional[str] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("messages", "cursor", "last", "removed")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[FeedMessage]
    cursor: str
    last: bool
    removed: int
    def __init__(self, messages: _Optional[_Iterable[_Union[FeedMessage, _Mapping]]] = ..., cursor: _Optional[str] = ..., last: _Optional[bool] = ..., removed: _Optional[int] = ...) -> None: ...

class FeedMessage(_message.Message):
    __slots__ = ("cursor", "topic", "id", "key", "value", "headers", "timestamp")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    topic: str
    id: str
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp: int
    def __init__(self, cursor: _Optional[str] = ..., topic: _Optional[str] = ..., id: _Optional[str] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
