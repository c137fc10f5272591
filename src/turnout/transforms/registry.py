"""Registry of transform and predicate classes by ``type``: built-in ones, plug-ins, and Connect's naming rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from turnout.base.startup import DeferredClasses, entry_points
from turnout.base.terminal import did_you_mean, nearest
from turnout.transforms.base import PACKAGE, Predicate, Side, Transform

ENTRY_POINT = "turnout.transforms"
"""The entry point group in which a package names its transforms and predicates."""

_OF_KAFKA: Final = {
    "Cast": "kafka.cast",
    "DropHeaders": "kafka.headers",
    "ExtractField": "kafka.whole_values",
    "Filter": "chain",
    "Flatten": "kafka.flatten",
    "HeaderFrom": "kafka.headers",
    "HoistField": "kafka.whole_values",
    "InsertField": "kafka.insert_field",
    "InsertHeader": "kafka.headers",
    "MaskField": "kafka.mask_field",
    "RegexRouter": "kafka.routers",
    "ReplaceField": "kafka.replace_field",
    "SetSchemaMetadata": "kafka.whole_values",
    "TimestampConverter": "kafka.timestamp_converter",
    "TimestampRouter": "kafka.routers",
    "ValueToKey": "kafka.whole_values",
}
"""The module of each transform that Kafka ships, below `turnout.transforms`."""

_OWN: Final = {
    "Base64": "community.contents",
    "ByLogicalTableRouter": "debezium.by_logical_table_router",
    "ChangeTopicCase": "community.topics",
    "CloudEvent": "community.cloud_event",
    "ConfluentFilter": "community.json_path",
    "ContentBasedRouter": "debezium.scripting",
    "DebeziumFilter": "debezium.scripting",
    "Drop": "community.contents",
    "EventRouter": "debezium.event_router",
    "ExtractChangedRecordState": "debezium.events",
    "ExtractNewDocumentState": "debezium.extract_new_document_state",
    "ExtractNewRecordState": "debezium.extract_new_record_state",
    "ExtractTimestamp": "community.times",
    "ExtractTopic": "community.topics",
    "FromJson": "community.contents",
    "GzipDecompress": "community.contents",
    "HeaderToField": "community.header_to_field",
    "HeaderToValue": "debezium.header_to_value",
    "LowerCaseTopic": "community.topics",
    "PartitionRouting": "debezium.partition_routing",
    "SchemaChangeEventFilter": "debezium.events",
    "Set": "community.set",
    "SubjectTransform": "community.topics",
    "TimescaleDb": "debezium.events",
    "TimestampNow": "community.times",
    "TimestampNowField": "community.times",
    "TimezoneConverter": "debezium.timezone_converter",
    "ToJson": "community.contents",
    "TopicRegexRouter": "kafka.routers",
}
"""The module of each of the others."""

_MODULES: Final = {name: f"turnout.transforms.{module}" for name, module in (*_OF_KAFKA.items(), *_OWN.items())}

TRANSFORMS: Mapping[str, type[Transform]] = DeferredClasses(_MODULES)
"""The transforms that are always there."""

RELEASED: Mapping[str, type[Transform]] = DeferredClasses({name: _MODULES[name] for name in _OF_KAFKA})
"""The transforms that Kafka ships."""

_PREDICATES: Final = ("TopicNameMatches", "HasHeaderKey", "RecordIsTombstone", "SubjectMatches")

_PREDICATE_MODULES: Final = {
    **dict.fromkeys(_PREDICATES, "turnout.transforms.predicates"),
    "Condition": "turnout.transforms.community.condition",
}

PREDICATES: Mapping[str, type[Predicate]] = DeferredClasses(_PREDICATE_MODULES)
"""The predicates that are always there."""

_DRAFT_PREDICATES = {"TopicMatches": "TopicNameMatches", "TopicNameMatch": "TopicNameMatches"}
PREDICATE_PACKAGES = (PACKAGE + "predicates.", "org.apache.kafka.connect.predicates.")


@dataclass(frozen=True, slots=True)
class Found:
    """Class of a transform, and the side given in its name."""

    kind: type[Transform]
    side: Side


class UnknownNameError(LookupError):
    """Raised when a type names no transform or predicate; the message gives the expected names."""


@cache
def _plugins() -> Mapping[str, type]:
    """Return the classes that installed packages offer, by the entry points' names."""
    return {entry_point.name: entry_point.load() for entry_point in entry_points(group=ENTRY_POINT)}


def transforms() -> Mapping[str, type[Transform]]:
    """Return all transforms by simple name: Kafka's, turnout's own, and plug-ins'."""
    offered = {name: kind for name, kind in _plugins().items() if issubclass(kind, Transform)}
    return DeferredClasses({**offered, **_MODULES})


def predicates() -> Mapping[str, type[Predicate]]:
    """Return all predicates by simple name."""
    offered = {name: kind for name, kind in _plugins().items() if issubclass(kind, Predicate)}
    return DeferredClasses({**offered, **_PREDICATE_MODULES})


def transform_names(simple: str) -> list[str]:
    """Return all names accepted for a transform's simple name: with sides, with Kafka's package and with others'."""
    kind = transforms()[simple]
    names = (simple, PACKAGE + simple, *kind.java_names)
    return [name + side for name in names for side in (("$Key", "$Value") if kind.sided else ("",))]


def predicate_names(simple: str) -> list[str]:
    """Return all names accepted for a predicate's simple name, including drafts' names and packages."""
    names = [simple, *(draft for draft, released in _DRAFT_PREDICATES.items() if released == simple)]
    return [*names, *(package + name for package in PREDICATE_PACKAGES for name in names)]


def find_transform(name: str, *, strict: bool = False) -> Found:
    """Return the transform that *name* means.

    Args:
        name: ``org.apache.kafka.connect.transforms.Cast$Key``, ``Cast$Key`` or ``RegexRouter``.
        strict: only the names that a Connect worker knows.

    Raises:
        UnknownNameError: when there is none of that name.
    """
    class_name, _, side = name.partition("$")
    kinds = RELEASED if strict else transforms()
    simple = class_name.removeprefix(PACKAGE)
    if simple not in kinds:
        by_class = {java_name: own_name for own_name, kind in kinds.items() for java_name in kind.java_names}
        simple = by_class.get(class_name, simple)
    kind = kinds.get(simple)
    if strict and not name.startswith(PACKAGE) and (kind is None or kind.sided):
        raise UnknownNameError(f"no class {name!r} is installed; a worker knows {PACKAGE}{simple}")
    if kind is None:
        raise UnknownNameError(_unknown("transform", name, simple, _labels(kinds)))
    if kind.sided and not side:
        raise UnknownNameError(f"{name!r} is abstract: did you mean {simple}$Key or {simple}$Value?")
    if side not in (("Key", "Value") if kind.sided else ("",)):
        guess = did_you_mean(side, ("Key", "Value")) if kind.sided else ""
        raise UnknownNameError(f"no class {name!r}: {simple} has no ${side}{guess}")
    return Found(kind, Side(side) if side else Side.VALUE)


def find_predicate(name: str, *, strict: bool = False) -> type[Predicate]:
    """Return the predicate that *name* means; a draft's name of one means the released one, unless *strict*.

    Raises:
        UnknownNameError: when there is none of that name.
    """
    packages = PREDICATE_PACKAGES[:1] if strict else PREDICATE_PACKAGES
    simple = name
    for package in packages:
        simple = simple.removeprefix(package)
    if not strict:
        simple = _DRAFT_PREDICATES.get(simple, simple)
    kinds = predicates()
    kind = kinds.get(simple)
    if kind is None or (strict and not kind.kafka and simple in PREDICATES):
        raise UnknownNameError(_unknown("predicate", name, simple, kinds))
    return kind


def _labels(names: Mapping[str, type[Transform]]) -> list[str]:
    return [
        label for name, kind in names.items() for label in ((f"{name}$Key", f"{name}$Value") if kind.sided else (name,))
    ]


def _unknown(kind: str, name: str, simple: str, candidates: Mapping[str, object] | list[str]) -> str:
    names = sorted(candidates)
    near = nearest(name.removeprefix(PACKAGE), names) or nearest(simple, names)
    hint = f" (did you mean {near}?)" if near else ""
    return f"no {kind} is named {name!r}{hint}; there are {', '.join(names)}"


PARITY: Mapping[str, str] = MappingProxyType(
    {
        "zone and locale": (
            "Connect prints and reads some times in the zone of its JVM, and names of months and days in its locale; "
            "here the zone is UTC and the locale en_US."
        ),
        "time zones by name": (
            "The letter z reads GMT, UTC and offsets; a text with another zone's name (PST) is a failure."
        ),
        "regular expressions": (
            "A pattern may take one second for a topic, and a topic may have 65,536 characters: beyond them the record "
            "fails. \\b sees ASCII words, as in Java 19 and later; \\b{g} is refused. \\p{…} knows the characters of "
            "the installed version of the package regex, Java those of its own Unicode version."
        ),
        "order of a HashMap": (
            "Where two fields of a schemaless map get one name by ReplaceField, the later one in the map's order wins; "
            "Connect's maps have the order of their hashes."
        ),
        "text of numbers": (
            "Floats and doubles are written with the fewest digits that name them, as in Java 19 and later; Java 17 "
            "writes a digit more for a few of them. MaskField's replacement for an integer without bounds has 10,000 "
            "digits at most."
        ),
        "NaN and infinities": (
            "They survive: JSON has them as the texts NaN, Infinity and -Infinity, as JsonConverter writes them, "
            "and a field of floats reads these texts as the numbers; JsonConverter reads its own texts as 0. A "
            "measurement is not to turn into another one."
        ),
        "schemaless dates": (
            "A date object without a schema becomes an ISO 8601 text in JSON; JsonConverter fails, as nothing "
            "says which number is meant. A text can be read by people and by TimestampConverter, and the record "
            "is not lost."
        ),
        "Cast of Date and Decimal": (
            "Cast of a whole key or value keeps the name of its schema (a Date cast to int64 is an int64 named "
            "Date), as Connect's does. JsonConverter then fails, as it looks for a date object; here the number "
            "is written, so that the cast does not lose every record."
        ),
        "look-behind": (
            "(?<=…) and (?<!…) may be of any length; Java refuses one without an obvious greatest length. The "
            "package regex has no such limit, a refusal would have to be made up, and what Java takes means the "
            "same."
        ),
        "nested fields": (
            "field.syntax.version (KIP-821) is known to ExtractField alone in Kafka 4.3, whose other transforms pass "
            "it over. Here Cast, HeaderFrom, HoistField, InsertField, MaskField, ReplaceField, TimestampConverter and "
            "ValueToKey have it too, and HoistField has hoisted, as the accepted KIP says; open questions are "
            "written under Nested fields."
        ),
        "maps of a literal": (
            "InsertHeader's literal stays text where its map has arrays or maps as keys, or keys that are equal "
            "in Python and not in Java ({true: 0, 1: 0}), as no dict holds them, and where more than a hundred "
            "arrays and maps are inside each other, as reading them takes the stack."
        ),
    }
)
"""Reason → the difference."""
