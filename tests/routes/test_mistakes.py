"""One letter wrong in any name that a route may hold: it is refused, with its place and what was meant.

So it is by the JSON Schema, which has only names to know it by.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import pytest
import yaml
from hypothesis import settings
from jsonschema import Draft202012Validator, ValidationError
from pydantic import BaseModel

from turnout.codecs.codec import camel_name
from turnout.codecs.format import BUILTIN
from turnout.errors import RouteError
from turnout.routes import Route, document, endpoints
from turnout.routes.json_schema import route_schema
from turnout.routes.yaml_text import dotted
from turnout.transforms.registry import predicates, transforms

END = {"format": "nats", "servers": "nats://127.0.0.1:4222"}
BASE: dict[str, Any] = {"name": "a", "source": {**END, "stream": "S"}, "sink": END}
ENDS: dict[str, dict[str, type[BaseModel]]] = {
    "source": {"nats": endpoints.NatsSource, "kafka": endpoints.KafkaSource, "json": endpoints.FileSource},
    "sink": {"nats": endpoints.NatsSink, "kafka": endpoints.KafkaSink, "csv": endpoints.FileSink},
}
BLOCKS: dict[str, type[BaseModel]] = {
    "subscriptions": document.SubscriptionsPart,
    "deadLetter": document.DeadLetterPart,
    "errors": document.ErrorsPart,
    "trigger": document.TriggerPart,
}
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
SCHEMA = Draft202012Validator(route_schema())
ALSO = {"type", "name", "predicate", "negate"}
"""Keys beside the options of a stage."""


def typos(name: str) -> Iterator[str]:
    """The name with two letters swapped, one dropped, one doubled."""
    for at in range(len(name)):
        yield name[:at] + name[at + 1 :]
        yield name[: at + 1] + name[at:]
        if at:
            yield name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :]


def names_of(model: type[BaseModel]) -> list[str]:
    return [str(field.alias or name) for name, field in model.model_fields.items()]


def wrong(names: list[str], more: set[str] | frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Return typos of each name that are not another name, with the name: all in `make check`, else every fourth."""
    for name in names:
        found = [typo for typo in dict.fromkeys(typos(name)) if typo and typo not in {*names, *more}]
        yield from ((typo, name) for typo in found[:: max(1, 100 // settings().max_examples)])


def check(text: Mapping[str, Any], path: str, name: str, names: list[str]) -> None:
    """The mistake is at its path and line, and means the name, or one that is as near."""
    with pytest.raises(RouteError) as raised:
        Route.parse(yaml.dump(dict(text), Dumper=DUMPER), {})
    mistakes_there = [mistake for mistake in raised.value.mistakes if mistake.path == path]
    assert mistakes_there, (path, raised.value)
    assert mistakes_there[0].line is not None
    meant = [name for name in names if f'did you mean "{name}"?' in mistakes_there[0].problem]
    assert meant == [name] or (meant and name in mistakes_there[0].problem), (path, name, mistakes_there[0].problem)
    # A block of Connect's properties says by another property what an option belongs to.
    if not isinstance(text.get("transforms"), dict):
        assert any(_names(error, path) for error in _all(SCHEMA.iter_errors(text))), path


def _all(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """The errors, and those of the alternatives that they are made of."""
    for error in errors:
        yield error
        yield from _all(error.context or ())


def _names(error: ValidationError, path: str) -> bool:
    """Return whether an error is about the last name of a path, or about the word there."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    if error.validator == "additionalProperties":
        instance: Any = error.instance
        refused = [name for name in instance if repr(name) in error.message]
        return path in [f"{place}.{name}".removeprefix(".") for name in refused]
    return error.validator in ("enum", "const") and place.removeprefix(".").removesuffix(".format") == path


def with_(**more: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BASE), **more}


def test_top_level_names() -> None:
    """Every block of a route."""
    names = names_of(document.RouteDocument)
    for typo, name in wrong(names):
        check(with_(**{typo: None}), typo, name, names)


@pytest.mark.parametrize(("side", "format_"), [(side, format_) for side, models in ENDS.items() for format_ in models])
def test_sources_and_sinks(side: str, format_: str) -> None:
    """Every option of every format."""
    names = names_of(ENDS[side][format_])
    for typo, name in wrong([name for name in names if name != "format"], {"format"}):
        block = {"format": format_, typo: "1"}
        check(with_(**{side: block}), f"{side}.{typo}", name, names)


def test_a_format() -> None:
    """The name of the format itself, as option and as value."""
    for typo, _ in wrong(["format"]):
        with pytest.raises(RouteError) as raised:
            Route.parse(yaml.safe_dump(with_(sink={typo: "nats"})), {})
        assert "format is required and missing" in str(raised.value)
        assert f'found {typo!r}, did you mean "format"?' in str(raised.value)
    formats = ["nats", "kafka", "json", "parquet", "csv", "avro"]
    for typo, name in wrong(formats):
        check(with_(sink={"format": typo}), "sink", name, formats)


@pytest.mark.parametrize("block", list(BLOCKS))
def test_blocks(block: str) -> None:
    """Every name in every other block."""
    names = names_of(BLOCKS[block])
    for typo, name in wrong(names):
        check(with_(**{block: {typo: "x"}}), f"{block}.{typo}", name, names)


def test_words() -> None:
    """Every word where only some are understood."""
    for model, block in [(model, block) for block, model in BLOCKS.items()]:
        for field_name, field in model.model_fields.items():
            words = [word for word in _words(field.annotation) if isinstance(word, str)]
            for typo, word in wrong(words):
                option = str(field.alias or field_name)
                check(with_(**{block: {option: typo}}), f"{block}.{option}", word, words)


def _words(annotation: Any) -> Iterator[Any]:
    for inner in get_args(annotation):
        if get_args(inner):
            yield from _words(inner)
        else:
            yield inner


@pytest.mark.parametrize("format_", [name for name, kind in BUILTIN.items() if kind.settings])
@pytest.mark.parametrize("side", ["key", "value"])
def test_codecs(side: str, format_: str) -> None:
    """Every setting of a format, as Connect and as a route spells it."""
    settings = BUILTIN[format_].settings or ()
    names = list(dict.fromkeys(name for setting in settings for name in (setting.name, camel_name(setting))))
    for typo, name in wrong(names, {"format"}):
        check(with_(**{side: {"format": format_, typo: "true"}}), f"{side}.{typo}", name, names)


@pytest.mark.parametrize("label", sorted(transforms()))
def test_transforms(label: str) -> None:
    """Every option of every transform, in a route's list and as Connect's property."""
    kind = transforms()[label]
    names = [option.name for option in kind.options]
    type_ = f"{label}$Value" if kind.sided else label
    for typo, name in wrong(names, ALSO):
        check(with_(transforms=[{"type": type_, typo: "x"}]), f"transforms[0].{typo}", name, names)
        block = {"transforms": "t", "transforms.t.type": type_, f"transforms.t.{typo}": "x"}
        check(with_(transforms=block), f"transforms.t.{typo}", name, names)


@pytest.mark.parametrize("label", sorted(predicates()))
def test_predicates(label: str) -> None:
    """Every option of every predicate."""
    names = [option.name for option in predicates()[label].options]
    for typo, name in wrong(names, {"type", "negate"}):
        stage = {"type": "Filter", "predicate": {"type": label, typo: "x"}}
        check(with_(transforms=[stage]), f"transforms[0].predicate.{typo}", name, names)


def test_what_stands_beside_the_options() -> None:
    """``predicate`` and ``negate``, and the type's own name."""
    for typo, name in wrong(["predicate", "negate"]):
        stage = {"type": "Filter", typo: {"type": "RecordIsTombstone"}}
        check(with_(transforms=[stage]), f"transforms[0].{typo}", name, ["predicate", "negate"])
    for typo, _ in wrong(["MaskField$Value"]):
        with pytest.raises(RouteError, match=r"did you mean|is abstract"):
            Route.parse(yaml.safe_dump(with_(transforms=[{"type": typo, "fields": "a"}])), {})


@pytest.mark.parametrize(
    ("destination", "blocks", "warned", "refused"),
    [
        ("late?delay=1h", {}, "add a scheduled block", ""),
        ("late?delay=soon", {}, "add a scheduled block", ""),
        ("late?delay=1h", {"scheduled": {}}, "", ""),
        ("late?delay=soon", {"scheduled": {}}, "", "expected a number of seconds"),
        ("late?deliverAt=2027-01-15", {"scheduled": {}}, "", "expected an ISO 8601 time"),
        ("late?delay=31d", {"scheduled": {}}, "", "30 days at most"),
        ("late.$1?delay=1h", {"scheduled": {}}, "placeholder beside other text", ""),
        ("https://hooks.example/in", {}, "add a webhooks block", ""),
        ("webhook:billing", {}, "add a webhooks block", ""),
        ("late?limit=5", {}, "", ""),
    ],
)
def test_a_mapping_whose_destination_lacks_its_block_is_told(
    destination: str, blocks: dict[str, object], warned: str, refused: str
) -> None:
    """Each of these is a valid subject for a server, and would be published there."""
    document = {**BASE, **blocks, "mappings": {"orders.*": [{"destination": destination, "weight": 50}]}}
    text = yaml.safe_dump(document)
    if refused:
        with pytest.raises(RouteError, match=refused) as mistake:
            Route.parse(text)
        assert mistake.value.mistakes[0].path == 'mappings["orders.*"]'
        return
    warnings = Route.parse(text).warnings
    assert [warned in warning.problem for warning in warnings] == ([True] if warned else [])


@pytest.mark.parametrize(
    ("sources", "unused"),
    [
        (["orders.>", "orders.old"], ["orders.old"]),
        (["orders.old", "orders.>"], []),
        (["orders.*", "orders.>", "orders.eu.*"], ["orders.eu.*"]),
        (["*.old", "orders.*", "orders.old"], ["orders.old"]),
        (["orders.*.x", "orders.a.>"], []),
        (["order.*", "orders.*"], ["order.*"]),
        (["*.new", "stock"], ["stock"]),
        ([">", "orders.new"], ["orders.new"]),
    ],
)
def test_a_mapping_that_no_record_takes_is_told(sources: list[str], unused: list[str]) -> None:
    """The first source that matches decides, and the source reads certain subjects only."""
    source = {**END, "stream": "S", "filterSubject": "orders.>"}
    document = {**BASE, "source": source, "mappings": {}}
    for number, name in enumerate(sources):
        document["mappings"][name] = f"out{number}.>" if name.endswith(">") else f"out{number}"
    warnings = Route.parse(yaml.safe_dump(document, sort_keys=False)).warnings
    assert [warning.path for warning in warnings] == [dotted(("mappings", name)) for name in unused]


def test_mappings_behind_a_stage_that_changes_topics_are_not_compared_with_the_source() -> None:
    """A router may make any topic."""
    router = {"type": "RegexRouter", "regex": "orders", "replacement": "sales"}
    for stages, expected in (([router], 0), ([], 1)):
        source = {**END, "topics": "orders", "format": "kafka", "servers": "127.0.0.1:9092"}
        document = {**BASE, "source": source, "transforms": stages, "mappings": {"sales": "out"}}
        assert len(Route.parse(yaml.safe_dump(document)).warnings) == expected


STORE = {"store": "memory://"}
CLUSTERED = {"x": [{"destination": name, "weight": 100, "cluster": name} for name in ("west", "east")]}


def test_a_sink_that_nothing_names_is_told() -> None:
    """The first one gets what names no sink; with subscriptions any may be named."""
    document = {**BASE, "sinks": {"a": END, "b": END, "c": END, "d": END}, "mappings": {"x": "b:y"}}
    del document["sink"]
    document |= {"deadLetter": {"topic": "c:dead"}, "errors": {"tolerance": "all"}}
    assert [warning.path for warning in Route.parse(yaml.safe_dump(document)).warnings] == ["sinks.d"]
    document["subscriptions"] = {"store": "memory://"}
    assert Route.parse(yaml.safe_dump(document)).warnings == ()


@pytest.mark.parametrize(
    ("part", "warned", "noted"),
    [
        ({"deadLetter": {"topic": "dead"}}, "deadLetter: gets no record", ""),
        ({"deadLetter": {"topic": "dead"}, "unmatched": "deadLetter", "subscriptions": STORE}, "", ""),
        ({"errors": {"tolerance": "all"}}, "", "without a deadLetter"),
        ({"errors": {"tolerance": "all"}, "deadLetter": {"topic": "dead"}}, "", ""),
        ({"cluster": "west"}, "cluster: no mapping has a destination", ""),
        (
            {"cluster": "wset", "mappings": CLUSTERED},
            "cluster: no mapping has a destination for this cluster: there",
            "",
        ),
        ({"cluster": "west", "mappings": CLUSTERED}, "", ""),
        ({"mappings": CLUSTERED}, "mappings: destinations for west, east are never chosen", ""),
    ],
)
def test_a_part_that_another_one_leaves_without_effect_is_told(
    part: dict[str, object], warned: str, noted: str
) -> None:
    """Failed records go where `errors` says, and destinations of a cluster are for that of the route."""
    route = Route.parse(yaml.safe_dump({**BASE, **part}))
    assert [warned in str(warning) for warning in route.warnings] == ([True] if warned else [])
    assert [noted in note for note in route.notes] == ([True] if noted else [])


@pytest.mark.parametrize(
    ("stage", "sink", "policy", "warned"),
    [
        ({"type": "InsertHeader", "header": "Nats-TTL", "value.literal": "1h"}, {}, "deadLetter", "leaves out unless"),
        ({"type": "HeaderFrom$Value", "fields": "id", "headers": "nats-msg-id", "operation": "copy"}, {}, "deadLetter",
         "leaves out unless"),
        ({"type": "Set", "fields": "{headers.Nats-Rollup: '\"sub\"'}"}, {}, "deadLetter", "leaves out unless"),
        ({"type": "InsertHeader", "header": "Nats-TTL", "value.literal": "1h"}, {"forwardHeaders": ["nats-ttl"]},
         "deadLetter", ""),
        ({"type": "InsertHeader", "header": "Nats-TTL", "value.literal": "1h"}, {"format": "kafka"}, "deadLetter", ""),
        ({"type": "InsertHeader", "header": "order id", "value.literal": "1"}, {}, "deadLetter", "makes its records"),
        ({"type": "InsertHeader", "header": "", "value.literal": "1"}, {}, "drop", "is left out for a sink"),
        ({"type": "InsertHeader", "header": "order id", "value.literal": "1"}, {"format": "kafka"}, "deadLetter", ""),
        ({"type": "InsertHeader", "header": "Order-Id", "value.literal": "1"}, {}, "deadLetter", ""),
    ],
)  # fmt: skip
def test_a_header_that_a_sink_does_not_write_is_told(
    stage: dict[str, object], sink: dict[str, object], policy: str, warned: str
) -> None:
    """The messages would be without it, or dead letters."""
    errors = {"badHeaders": policy, "tolerance": "all"}
    end = {**END, "servers": "nats://127.0.0.1:4333", **sink}
    parts = {"value": {"format": "json"}, "sink": end, "transforms": [stage], "errors": errors}
    parts["deadLetter"] = {"topic": "dead"}
    warnings = Route.parse(yaml.safe_dump({**BASE, **parts})).warnings
    assert [warned in warning.problem for warning in warnings] == ([True] if warned else [])


@pytest.mark.parametrize(
    ("stage", "warned"),
    [
        ({"type": "Filter"}, "drops every record"),
        ({"type": "Filter", "predicate": {"type": "HasHeaderKey", "name": "a"}}, ""),
        ({"type": "TimestampRouter", "timestamp.format": "YYYYMMdd"}, "year of the week"),
        ({"type": "TimestampRouter", "timestamp.format": "YYYY-'W'ww"}, ""),
        ({"type": "TimestampRouter", "timestamp.format": "yyyyMMDD"}, "day of the year"),
        ({"type": "TimestampRouter", "timestamp.format": "yyyyDDD"}, ""),
        ({"type": "TimestampRouter", "timestamp.format": "yyyymmdd"}, "minute"),
        ({"type": "TimestampRouter", "timestamp.format": "yyyyMMddhh"}, "from 1 to 12"),
        ({"type": "TimestampRouter", "timestamp.format": "yyyy-MM-dd-hha"}, ""),
        ({"type": "TimestampRouter", "timestamp.format": "yyyyMMdd'hhYYYY'HHmm"}, ""),
    ],
)
def test_a_stage_that_probably_means_something_else_is_told(stage: dict[str, object], warned: str) -> None:
    """Connect runs it, and its messages are lost or elsewhere."""
    sink = {**END, "servers": "nats://127.0.0.1:4333"}
    warnings = Route.parse(yaml.safe_dump({**BASE, "sink": sink, "transforms": [stage]})).warnings
    assert [warned in warning.problem for warning in warnings] == ([True] if warned else [])


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"type": "ReplaceField$Value"}, "changes nothing"),
        ({"type": "ReplaceField$Value", "include": "a,b", "exclude": "b"}, "'b' is removed by exclude"),
        ({"type": "ReplaceField$Value", "renames": "a:c,b:c"}, "2 fields get the name 'c'"),
        ({"type": "InsertField$Value", "topic.field": "a!", "offset.field": "a"}, "'a' is overwritten by offset.field"),
    ],
)
def test_an_option_that_another_one_undoes_is_refused(options: dict[str, object], refused: str) -> None:
    """Connect takes it; a value would be lost without a word."""
    with pytest.raises(RouteError, match=re.escape(refused)):
        Route.parse(yaml.safe_dump({**BASE, "value": {"format": "json"}, "transforms": [options]}))


KAFKA = {"format": "kafka", "servers": "127.0.0.1:9092", "topics": "orders,stock"}
EXCLUDE = {"type": "ReplaceField$Value", "exclude": "a"}
RENAME = {"type": "ReplaceField$Value", "renames": "a:b"}
INCLUDE = {"type": "ReplaceField$Value", "include": "b"}
MASK = {"type": "MaskField$Value", "fields": "a"}
TOMBSTONE = {"type": "RecordIsTombstone"}


@pytest.mark.parametrize(
    ("stages", "warned"),
    [
        ([{"type": "Cast$Value", "spec": "a:int32,b:string,a:string"}], "names 'a' 2 times: the last one counts"),
        ([{"type": "Cast$Value", "spec": "a:int32,a:int32"}], ""),
        ([{"type": "ReplaceField$Value", "renames": "a:b,a:c"}], "names 'a' 2 times: the last one counts"),
        ([{"type": "ReplaceField$Value", "renames": "a:b,b:a"}, MASK], ""),
        ([EXCLUDE, MASK], "no value has a field 'a' at that point: 1-ReplaceField$Value removes or"),
        ([RENAME, MASK], "no value has a field 'a'"),
        ([INCLUDE, MASK], "no value has a field 'a'"),
        ([RENAME, {"type": "RegexRouter", "regex": ".*", "replacement": "x"}, MASK], "no value has a field 'a'"),
        ([RENAME, {"type": "MaskField$Value", "fields": "c"}, MASK], "no value has a field 'a'"),
        ([RENAME, {"type": "InsertField$Value", "topic.field": "a"}, MASK], ""),
        ([RENAME, {"type": "HoistField$Value", "field": "a"}, MASK], ""),
        ([{**EXCLUDE, "predicate": TOMBSTONE}, MASK], ""),
        ([{"type": "ReplaceField$Value", "exclude": "b", "renames": "c:a"}, MASK], ""),
        ([EXCLUDE, {"type": "MaskField$Key", "fields": "a"}], ""),
        ([MASK, EXCLUDE], ""),
        ([{"type": "ReplaceField$Value", "exclude": "x"}, {"type": "ReplaceField$Value", "include": "a"}, MASK], ""),
    ],
)
def test_a_stage_on_a_field_that_is_gone_is_told(stages: list[dict[str, object]], warned: str) -> None:
    """Of objects without a schema nothing else would say so: a mask of a renamed field masks nothing."""
    json = {"format": "json"}
    document = {**BASE, "source": KAFKA, "key": json, "value": json, "transforms": stages}
    warnings = Route.parse(yaml.safe_dump(document)).warnings
    assert [warned in warning.problem for warning in warnings] == ([True] if warned else [])


def test_metadata_of_a_field_that_is_gone_is_told() -> None:
    """Conditions on it would hold for no record."""
    metadata = {"old": "value.a", "new": "value.b", "each": "value.c[].x", "key": "key.a"}
    part = {"store": "memory://", "metadata": metadata}
    document = {**BASE, "key": {"format": "json"}, "value": {"format": "json"}, "transforms": [RENAME]}
    (warning,) = Route.parse(yaml.safe_dump({**document, "subscriptions": part})).warnings
    assert (warning.path, warning.line is None) == ("subscriptions.metadata.old", False)


@pytest.mark.parametrize(
    ("stage", "source", "warned"),
    [
        ({"predicate": {"type": "TopicNameMatches", "pattern": "order"}}, {}, "holds for no record: the source reads"),
        ({"predicate": {"type": "TopicNameMatches", "pattern": "sto.*"}}, {}, ""),
        ({"predicate": {"type": "SubjectMatches", "subject": "order"}}, {}, "reads orders, stock"),
        ({"predicate": {"type": "SubjectMatches", "subject": "stock"}}, {}, ""),
        ({"type": "RegexRouter", "regex": "ord", "replacement": "x"}, {}, "changes no record"),
        ({"type": "RegexRouter", "regex": "(ord).*", "replacement": "$1"}, {}, ""),
        ({"predicate": {"type": "SubjectMatches", "subject": "a.*"}}, {"filterSubject": "orders.>"}, "holds for no"),
        ({"predicate": {"type": "SubjectMatches", "subject": "*.a"}}, {"filterSubject": "orders.>"}, ""),
        ({"predicate": {"type": "TopicNameMatches", "pattern": "a"}}, {"filterSubject": "orders.>"}, ""),
        ({"predicate": {"type": "TopicNameMatches", "pattern": "a"}}, {"filterSubject": "orders.b"}, "holds for no"),
        ({"predicate": {"type": "TopicNameMatches", "pattern": "a"}}, {"stream": "S"}, ""),
    ],
)
def test_a_topic_that_the_source_does_not_read_is_told(
    stage: dict[str, object], source: dict[str, object], warned: str
) -> None:
    """A predicate on it lets no record to its stage, and a router leaves all as they are."""
    own = {**END, "stream": "S", **source} if source else KAFKA
    sink = {**END, "servers": "nats://127.0.0.1:4333"}
    for before in ([], [{"type": "RegexRouter", "regex": ".*", "replacement": "order"}]):
        stages = [*before, {"type": "Filter", **stage}]
        warnings = Route.parse(yaml.safe_dump({**BASE, "source": own, "sink": sink, "transforms": stages})).warnings
        # Behind a router any topic is possible.
        assert [warned in warning.problem for warning in warnings] == ([True] if warned and not before else [])


def test_a_predicate_that_no_stage_names_is_told() -> None:
    """Connect checks it, and uses it nowhere."""
    used = {"transforms": "f", "transforms.f.type": "Filter", "transforms.f.predicate": "p", "predicates": "p,q"}
    block = {**used, "predicates.p.type": "RecordIsTombstone", "predicates.q.type": "RecordIsTombstone"}
    (warning,) = Route.parse(yaml.safe_dump({**BASE, "transforms": block})).warnings
    assert (warning.path, warning.problem) == ("transforms.predicates.q", "no stage names it")
