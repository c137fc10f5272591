from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupLogic(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    And: _ClassVar[GroupLogic]
    Or: _ClassVar[GroupLogic]
    Xor: _ClassVar[GroupLogic]

class ExpiryClock(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Record: _ClassVar[ExpiryClock]
    Wall: _ClassVar[ExpiryClock]
And: GroupLogic
Or: GroupLogic
Xor: GroupLogic
Record: ExpiryClock
Wall: ExpiryClock

class SubscriptionDataInput(_message.Message):
    __slots__ = ("metadata", "route", "enabled", "expires", "delivery", "start", "keepPaused", "project", "deliveriesQuota")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    KEEPPAUSED_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DELIVERIESQUOTA_FIELD_NUMBER: _ClassVar[int]
    metadata: _containers.ScalarMap[str, str]
    route: RouteInput
    enabled: bool
    expires: Expiry
    delivery: _struct_pb2.Struct
    start: str
    keepPaused: bool
    project: str
    deliveriesQuota: int
    def __init__(self, metadata: _Optional[_Mapping[str, str]] = ..., route: _Optional[_Union[RouteInput, _Mapping]] = ..., enabled: _Optional[bool] = ..., expires: _Optional[_Union[Expiry, _Mapping]] = ..., delivery: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., start: _Optional[str] = ..., keepPaused: _Optional[bool] = ..., project: _Optional[str] = ..., deliveriesQuota: _Optional[int] = ...) -> None: ...

class RouteInput(_message.Message):
    __slots__ = ("destinations", "condition")
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    destinations: _containers.RepeatedScalarFieldContainer[str]
    condition: ConditionInput
    def __init__(self, destinations: _Optional[_Iterable[str]] = ..., condition: _Optional[_Union[ConditionInput, _Mapping]] = ...) -> None: ...

class ConditionInput(_message.Message):
    __slots__ = ("groupCondition", "kiwiTreeCondition", "kiwiCondition", "compareCondition", "existsCondition", "cidrCondition", "regexCondition", "elementCondition", "subjectCondition", "fieldCondition")
    GROUPCONDITION_FIELD_NUMBER: _ClassVar[int]
    KIWITREECONDITION_FIELD_NUMBER: _ClassVar[int]
    KIWICONDITION_FIELD_NUMBER: _ClassVar[int]
    COMPARECONDITION_FIELD_NUMBER: _ClassVar[int]
    EXISTSCONDITION_FIELD_NUMBER: _ClassVar[int]
    CIDRCONDITION_FIELD_NUMBER: _ClassVar[int]
    REGEXCONDITION_FIELD_NUMBER: _ClassVar[int]
    ELEMENTCONDITION_FIELD_NUMBER: _ClassVar[int]
    SUBJECTCONDITION_FIELD_NUMBER: _ClassVar[int]
    FIELDCONDITION_FIELD_NUMBER: _ClassVar[int]
    groupCondition: GroupConditionInput
    kiwiTreeCondition: KiwiTreeConditionInput
    kiwiCondition: KiwiConditionInput
    compareCondition: CompareConditionInput
    existsCondition: ExistsConditionInput
    cidrCondition: CidrConditionInput
    regexCondition: RegexConditionInput
    elementCondition: ElementConditionInput
    subjectCondition: SubjectConditionInput
    fieldCondition: FieldConditionInput
    def __init__(self, groupCondition: _Optional[_Union[GroupConditionInput, _Mapping]] = ..., kiwiTreeCondition: _Optional[_Union[KiwiTreeConditionInput, _Mapping]] = ..., kiwiCondition: _Optional[_Union[KiwiConditionInput, _Mapping]] = ..., compareCondition: _Optional[_Union[CompareConditionInput, _Mapping]] = ..., existsCondition: _Optional[_Union[ExistsConditionInput, _Mapping]] = ..., cidrCondition: _Optional[_Union[CidrConditionInput, _Mapping]] = ..., regexCondition: _Optional[_Union[RegexConditionInput, _Mapping]] = ..., elementCondition: _Optional[_Union[ElementConditionInput, _Mapping]] = ..., subjectCondition: _Optional[_Union[SubjectConditionInput, _Mapping]] = ..., fieldCondition: _Optional[_Union[FieldConditionInput, _Mapping]] = ...) -> None: ...

class GroupConditionInput(_message.Message):
    __slots__ = ("logic", "group")
    NOT_FIELD_NUMBER: _ClassVar[int]
    LOGIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    logic: GroupLogic
    group: _containers.RepeatedCompositeFieldContainer[ConditionInput]
    def __init__(self, logic: _Optional[_Union[GroupLogic, str]] = ..., group: _Optional[_Iterable[_Union[ConditionInput, _Mapping]]] = ..., **kwargs) -> None: ...

class KiwiTreeConditionInput(_message.Message):
    __slots__ = ("key", "pattern", "partial", "ignoreCase")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    IGNORECASE_FIELD_NUMBER: _ClassVar[int]
    key: str
    pattern: str
    partial: bool
    ignoreCase: bool
    def __init__(self, key: _Optional[str] = ..., pattern: _Optional[str] = ..., partial: _Optional[bool] = ..., ignoreCase: _Optional[bool] = ..., **kwargs) -> None: ...

class KiwiConditionInput(_message.Message):
    __slots__ = ("key", "pattern", "partial", "ignoreCase")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    IGNORECASE_FIELD_NUMBER: _ClassVar[int]
    key: str
    pattern: str
    partial: bool
    ignoreCase: bool
    def __init__(self, key: _Optional[str] = ..., pattern: _Optional[str] = ..., partial: _Optional[bool] = ..., ignoreCase: _Optional[bool] = ..., **kwargs) -> None: ...

class CompareConditionInput(_message.Message):
    __slots__ = ("key", "op", "number")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    key: str
    op: str
    number: float
    def __init__(self, key: _Optional[str] = ..., op: _Optional[str] = ..., number: _Optional[float] = ..., **kwargs) -> None: ...

class ExistsConditionInput(_message.Message):
    __slots__ = ("key",)
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ..., **kwargs) -> None: ...

class CidrConditionInput(_message.Message):
    __slots__ = ("key", "network")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    key: str
    network: str
    def __init__(self, key: _Optional[str] = ..., network: _Optional[str] = ..., **kwargs) -> None: ...

class RegexConditionInput(_message.Message):
    __slots__ = ("key", "regex")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    key: str
    regex: str
    def __init__(self, key: _Optional[str] = ..., regex: _Optional[str] = ..., **kwargs) -> None: ...

class ElementConditionInput(_message.Message):
    __slots__ = ("key", "where")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    key: str
    where: str
    def __init__(self, key: _Optional[str] = ..., where: _Optional[str] = ..., **kwargs) -> None: ...

class SubjectConditionInput(_message.Message):
    __slots__ = ("key", "subject")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    key: str
    subject: str
    def __init__(self, key: _Optional[str] = ..., subject: _Optional[str] = ..., **kwargs) -> None: ...

class FieldConditionInput(_message.Message):
    __slots__ = ("key", "op", "field", "ignoreCase")
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    IGNORECASE_FIELD_NUMBER: _ClassVar[int]
    key: str
    op: str
    field: str
    ignoreCase: bool
    def __init__(self, key: _Optional[str] = ..., op: _Optional[str] = ..., field: _Optional[str] = ..., ignoreCase: _Optional[bool] = ..., **kwargs) -> None: ...

class CreateResponse(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("id", "expectedRevision")
    ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTEDREVISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    expectedRevision: int
    def __init__(self, id: _Optional[str] = ..., expectedRevision: _Optional[int] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("id", "data", "expectedRevision")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EXPECTEDREVISION_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: SubscriptionDataOutput
    expectedRevision: int
    def __init__(self, id: _Optional[str] = ..., data: _Optional[_Union[SubscriptionDataOutput, _Mapping]] = ..., expectedRevision: _Optional[int] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class SubscriptionDataOutput(_message.Message):
    __slots__ = ("metadata", "route", "revision", "enabled", "expires", "delivery", "start", "keepPaused", "project", "deliveriesQuota")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    KEEPPAUSED_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DELIVERIESQUOTA_FIELD_NUMBER: _ClassVar[int]
    metadata: _containers.ScalarMap[str, str]
    route: RouteOutput
    revision: int
    enabled: bool
    expires: Expiry
    delivery: _struct_pb2.Struct
    start: str
    keepPaused: bool
    project: str
    deliveriesQuota: int
    def __init__(self, metadata: _Optional[_Mapping[str, str]] = ..., route: _Optional[_Union[RouteOutput, _Mapping]] = ..., revision: _Optional[int] = ..., enabled: _Optional[bool] = ..., expires: _Optional[_Union[Expiry, _Mapping]] = ..., delivery: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., start: _Optional[str] = ..., keepPaused: _Optional[bool] = ..., project: _Optional[str] = ..., deliveriesQuota: _Optional[int] = ...) -> None: ...

class Expiry(_message.Message):
    __slots__ = ("at", "by")
    AT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    at: int
    by: ExpiryClock
    def __init__(self, at: _Optional[int] = ..., by: _Optional[_Union[ExpiryClock, str]] = ...) -> None: ...

class RouteOutput(_message.Message):
    __slots__ = ("destinations", "condition")
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    destinations: _containers.RepeatedScalarFieldContainer[str]
    condition: ConditionOutput
    def __init__(self, destinations: _Optional[_Iterable[str]] = ..., condition: _Optional[_Union[ConditionOutput, _Mapping]] = ...) -> None: ...

class ConditionOutput(_message.Message):
    __slots__ = ("groupCondition", "kiwiCondition", "compareCondition", "existsCondition", "cidrCondition", "regexCondition", "elementCondition", "subjectCondition", "fieldCondition")
    GROUPCONDITION_FIELD_NUMBER: _ClassVar[int]
    KIWICONDITION_FIELD_NUMBER: _ClassVar[int]
    COMPARECONDITION_FIELD_NUMBER: _ClassVar[int]
    EXISTSCONDITION_FIELD_NUMBER: _ClassVar[int]
    CIDRCONDITION_FIELD_NUMBER: _ClassVar[int]
    REGEXCONDITION_FIELD_NUMBER: _ClassVar[int]
    ELEMENTCONDITION_FIELD_NUMBER: _ClassVar[int]
    SUBJECTCONDITION_FIELD_NUMBER: _ClassVar[int]
    FIELDCONDITION_FIELD_NUMBER: _ClassVar[int]
    groupCondition: GroupConditionOutput
    kiwiCondition: KiwiConditionOutput
    compareCondition: CompareConditionOutput
    existsCondition: ExistsConditionOutput
    cidrCondition: CidrConditionOutput
    regexCondition: RegexConditionOutput
    elementCondition: ElementConditionOutput
    subjectCondition: SubjectConditionOutput
    fieldCondition: FieldConditionOutput
    def __init__(self, groupCondition: _Optional[_Union[GroupConditionOutput, _Mapping]] = ..., kiwiCondition: _Optional[_Union[KiwiConditionOutput, _Mapping]] = ..., compareCondition: _Optional[_Union[CompareConditionOutput, _Mapping]] = ..., existsCondition: _Optional[_Union[ExistsConditionOutput, _Mapping]] = ..., cidrCondition: _Optional[_Union[CidrConditionOutput, _Mapping]] = ..., regexCondition: _Optional[_Union[RegexConditionOutput, _Mapping]] = ..., elementCondition: _Optional[_Union[ElementConditionOutput, _Mapping]] = ..., subjectCondition: _Optional[_Union[SubjectConditionOutput, _Mapping]] = ..., fieldCondition: _Optional[_Union[FieldConditionOutput, _Mapping]] = ...) -> None: ...

class GroupConditionOutput(_message.Message):
    __slots__ = ("logic", "group", "id")
    NOT_FIELD_NUMBER: _ClassVar[int]
    LOGIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    logic: GroupLogic
    group: _containers.RepeatedCompositeFieldContainer[ConditionOutput]
    id: str
    def __init__(self, logic: _Optional[_Union[GroupLogic, str]] = ..., group: _Optional[_Iterable[_Union[ConditionOutput, _Mapping]]] = ..., id: _Optional[str] = ..., **kwargs) -> None: ...

class KiwiConditionOutput(_message.Message):
    __slots__ = ("id", "key", "pattern", "partial", "ignoreCase", "tree")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    IGNORECASE_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    pattern: str
    partial: bool
    ignoreCase: bool
    tree: bool
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., pattern: _Optional[str] = ..., partial: _Optional[bool] = ..., ignoreCase: _Optional[bool] = ..., tree: _Optional[bool] = ..., **kwargs) -> None: ...

class CompareConditionOutput(_message.Message):
    __slots__ = ("id", "key", "op", "number")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    op: str
    number: float
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., op: _Optional[str] = ..., number: _Optional[float] = ..., **kwargs) -> None: ...

class ExistsConditionOutput(_message.Message):
    __slots__ = ("id", "key")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., **kwargs) -> None: ...

class CidrConditionOutput(_message.Message):
    __slots__ = ("id", "key", "network")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    network: str
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., network: _Optional[str] = ..., **kwargs) -> None: ...

class RegexConditionOutput(_message.Message):
    __slots__ = ("id", "key", "regex")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    regex: str
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., regex: _Optional[str] = ..., **kwargs) -> None: ...

class ElementConditionOutput(_message.Message):
    __slots__ = ("id", "key", "where")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    where: str
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., where: _Optional[str] = ..., **kwargs) -> None: ...

class SubjectConditionOutput(_message.Message):
    __slots__ = ("id", "key", "subject")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    subject: str
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., subject: _Optional[str] = ..., **kwargs) -> None: ...

class FieldConditionOutput(_message.Message):
    __slots__ = ("id", "key", "op", "field", "ignoreCase")
    ID_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    IGNORECASE_FIELD_NUMBER: _ClassVar[int]
    id: str
    key: str
    op: str
    field: str
    ignoreCase: bool
    def __init__(self, id: _Optional[str] = ..., key: _Optional[str] = ..., op: _Optional[str] = ..., field: _Optional[str] = ..., ignoreCase: _Optional[bool] = ..., **kwargs) -> None: ...

class SearchByConditionRequest(_message.Message):
    __slots__ = ("cursor", "limit", "kiwiConditionQuery")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KIWICONDITIONQUERY_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    limit: int
    kiwiConditionQuery: KiwiConditionQuery
    def __init__(self, cursor: _Optional[str] = ..., limit: _Optional[int] = ..., kiwiConditionQuery: _Optional[_Union[KiwiConditionQuery, _Mapping]] = ...) -> None: ...

class KiwiConditionQuery(_message.Message):
    __slots__ = ("key", "pattern", "partial")
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    key: str
    pattern: str
    partial: bool
    def __init__(self, key: _Optional[str] = ..., pattern: _Optional[str] = ..., partial: _Optional[bool] = ...) -> None: ...

class SearchByConditionResponse(_message.Message):
    __slots__ = ("page", "cursor")
    PAGE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    page: _containers.RepeatedCompositeFieldContainer[ConditionMatch]
    cursor: str
    def __init__(self, page: _Optional[_Iterable[_Union[ConditionMatch, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class ConditionMatch(_message.Message):
    __slots__ = ("subscriptionId", "conditionId", "route", "metadata", "revision", "enabled", "expires", "delivery", "start", "keepPaused", "project", "deliveriesQuota")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUBSCRIPTIONID_FIELD_NUMBER: _ClassVar[int]
    CONDITIONID_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    KEEPPAUSED_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    DELIVERIESQUOTA_FIELD_NUMBER: _ClassVar[int]
    subscriptionId: str
    conditionId: str
    route: RouteOutput
    metadata: _containers.ScalarMap[str, str]
    revision: int
    enabled: bool
    expires: Expiry
    delivery: _struct_pb2.Struct
    start: str
    keepPaused: bool
    project: str
    deliveriesQuota: int
    def __init__(self, subscriptionId: _Optional[str] = ..., conditionId: _Optional[str] = ..., route: _Optional[_Union[RouteOutput, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., revision: _Optional[int] = ..., enabled: _Optional[bool] = ..., expires: _Optional[_Union[Expiry, _Mapping]] = ..., delivery: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., start: _Optional[str] = ..., keepPaused: _Optional[bool] = ..., project: _Optional[str] = ..., deliveriesQuota: _Optional[int] = ...) -> None: ...

class SearchByMetadataRequest(_message.Message):
    __slots__ = ("cursor", "limit", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    limit: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, cursor: _Optional[str] = ..., limit: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SearchByMetadataResponse(_message.Message):
    __slots__ = ("page", "cursor")
    PAGE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    page: _containers.RepeatedCompositeFieldContainer[Subscription]
    cursor: str
    def __init__(self, page: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("id", "data")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: SubscriptionDataOutput
    def __init__(self, id: _Optional[str] = ..., data: _Optional[_Union[SubscriptionDataOutput, _Mapping]] = ...) -> None: ...
