from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class KeyPatternRequest(_message.Message):
    __slots__ = ("key", "pattern")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    key: str
    pattern: str
    def __init__(self, key: _Optional[str] = ..., pattern: _Optional[str] = ...) -> None: ...
