"""Fields that a route masks, followed through every transform."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.history.masked_routes import ROUTE, SECRET, route_of
from turnout.conditions import parse
from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConfigError
from turnout.history.masking import (
    HIDDEN,
    Hidden,
    check_condition,
    hidden_anywhere,
    hidden_by_stage,
    masked_explanation,
    masked_metadata,
    masked_sentence,
)
from turnout.records import Record, Shape
from turnout.routes import Route
from turnout.transforms import registry
from turnout.transforms.base import Move, Step, Transform, unchanged
from turnout.transforms.registry import RELEASED

# Of each released transform: its options, and the field that is masked behind it.
CHAINS: Mapping[str, tuple[str, str]] = {
    "Cast": ("type: Cast$Value, spec: 'card:string'", "card"),
    "DropHeaders": ("type: DropHeaders, headers: Other", "card"),
    "ExtractField": ("type: ExtractField$Value, field: payload", "card"),
    "Filter": ("type: Filter, predicate: {type: HasHeaderKey, name: Never}", "card"),
    "Flatten": ("type: Flatten$Value, delimiter: _", "payload_card"),
    "HeaderFrom": ("type: HeaderFrom$Value, fields: card, headers: Card, operation: copy", "card"),
    "HoistField": ("type: HoistField$Value, field: order", "order"),
    "InsertField": ("type: InsertField$Value, static.field: source, static.value: a", "card"),
    "InsertHeader": ("type: InsertHeader, header: Source, value.literal: a", "card"),
    "MaskField": ("type: MaskField$Value, fields: other", "card"),
    "RegexRouter": ("type: RegexRouter, regex: '(.*)', replacement: 'x.$1'", "card"),
    "ReplaceField": ("type: ReplaceField$Value, renames: 'card:pan'", "pan"),
    "SetSchemaMetadata": ("type: SetSchemaMetadata$Value, schema.name: a", "card"),
    "TimestampConverter": ("type: TimestampConverter$Value, field: at, target.type: unix", "card"),
    "TimestampRouter": ("type: TimestampRouter", "card"),
    "ValueToKey": ("type: ValueToKey, fields: card", "card"),
}


def explained(route: Route, value: bytes) -> tuple[Any, Any]:
    """The explanation of a record with this value, in clear and masked."""
    given = SampleRecord(
        "orders.1", value, headers=(("Id", b"7"),), timestamp=1_700_000_000_000_000, offset=1, stream="S"
    )
    explanation = explain(Program.of(route), record_batch([given]))
    return explanation.as_dict(), masked_explanation(explanation, route).as_dict()


@pytest.mark.parametrize("name", sorted(RELEASED))
def test_no_view_shows_what_is_masked_behind_a_released_transform(name: str) -> None:
    """Before the transform, behind it, in what goes out, in copies that it made, and where it fails."""
    options, masked = CHAINS[name]
    in_payload = name in ("ExtractField", "Flatten")
    values: list[Any] = [
        {"payload": {"card": SECRET}, "n": 1} if in_payload else {"card": SECRET, "at": None, "n": 1},
        {"payload": {"card": [SECRET]}} if in_payload else {"card": [SECRET]},
        SECRET,
        [{"card": SECRET}],
    ]
    for written in (*(json.dumps(value).encode() for value in values), f'{{"card": "{SECRET}"'.encode()):
        clear, shown = explained(route_of(options, masked), written)

        assert SECRET in json.dumps(clear, default=str)
        assert not [part for part, content in shown.items() if SECRET in json.dumps(content, default=str)], written


@pytest.mark.parametrize(
    ("options", "masked"),
    [
        ("type: ReplaceField$Value, renames: 'order.card:pan'", "order.pan"),
        ("type: HeaderFrom$Value, fields: order.card, headers: Card, operation: copy", "order.card"),
        ("type: HoistField$Value, hoisted: order.card, field: wrapped", "order.wrapped"),
        ("type: ValueToKey, fields: order.card", "order.card"),
        ("type: Cast$Value, spec: 'order.card:string'", "order.card"),
        ("type: ExtractField$Value, field: order", "card"),
    ],
)
def test_no_view_shows_a_nested_field_that_is_masked(options: str, masked: str) -> None:
    """KIP-821's paths are followed as names are, also where something else is in the place of the object."""
    masked_at = f"{masked}, field.syntax.version: V2"
    route = route_of(f"{options}, field.syntax.version: V2", masked_at)
    for value in ({"order": {"card": SECRET, "n": 1}, "n": 2}, {"order": SECRET}, {"order": [SECRET]}, SECRET):
        clear, shown = explained(route, json.dumps(value).encode())

        assert SECRET in json.dumps(clear, default=str)
        assert not [part for part, content in shown.items() if SECRET in json.dumps(content, default=str)], value


def test_what_stands_in_the_place_of_an_expected_object_is_hidden() -> None:
    """It may be the masked field, sent without its wrapper."""
    _, shown = explained(route_of("type: ExtractField$Value, field: payload", "card"), b'{"payload": "4929", "n": 1}')

    assert (shown["record"]["value"], shown["outcome"]) == ({"payload": HIDDEN, "n": 1}, "dead_lettered")
    assert "4929" not in json.dumps(shown, default=str)


def test_every_transform_says_what_it_moves() -> None:
    """A new one without `moves` would hide everything around it."""
    silent = {name for name, kind in RELEASED.items() if "moves" not in _own(kind) and not kind.keeps_paths}

    assert set(CHAINS) == set(RELEASED)
    assert silent == {"Flatten"}, "which follows paths itself"


def _own(kind: type[Transform]) -> set[str]:
    return set(vars(kind))


@dataclass(frozen=True, slots=True)
class Silent(Transform):
    """Plug-in transform that does not declare the content it moves."""

    def plan(self, shape: Shape) -> Step:
        return Step(unchanged)


@dataclass(frozen=True, slots=True)
class Telling(Transform):
    """Plug-in transform that declares the content it moves."""

    def plan(self, shape: Shape) -> Step:
        return Step(unchanged)

    def moves(self) -> tuple[Move, ...]:
        return (Move(("value", "secret"), ("value", "card")),)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", lambda: {"Silent": Silent, "Telling": Telling})


@pytest.mark.usefixtures("plugins")
def test_a_transform_that_does_not_say_what_it_moves_hides_all_content_around_it() -> None:
    """Before it, since a later mask may be of any field; behind it and the mask, since it may have made copies."""
    record = Record("orders.1", {"other": SECRET}, key=SECRET)
    for hidden in hidden_by_stage(route_of("type: Silent$Value", "card").chain):
        seen = hidden.masked(record)
        assert (seen["topic"], seen["key"], seen["value"]) == ("orders.1", HIDDEN, HIDDEN)


@pytest.mark.usefixtures("plugins")
def test_a_transform_that_says_what_it_moves_is_followed() -> None:
    """Other fields are shown, and behind the mask all of them."""
    places = hidden_by_stage(route_of("type: Telling$Value", "card").chain)

    assert places[0].masked(Record("t", {"secret": SECRET, "n": 1}))["value"] == {"secret": HIDDEN, "n": 1}
    assert not places[-1]


@pytest.mark.usefixtures("plugins")
def test_a_silent_transform_hides_nothing_without_a_mask() -> None:
    """A route that masks nothing shows everything."""
    text = ROUTE.format(options="type: Silent$Value", masked="a")
    lines = [line for line in text.splitlines() if "MaskField" not in line]

    assert not hidden_anywhere(Route.parse("\n".join(lines), {}).chain)


def test_a_mask_with_a_predicate_hides_the_field_behind_it_too() -> None:
    """Records that the predicate leaves out go out as they are."""
    route = route_of("type: MaskField$Value, fields: pan, predicate: {type: HasHeaderKey, name: A}", "card")

    assert hidden_by_stage(route.chain)[-1].masked(Record("t", {"pan": SECRET}))["value"] == {"pan": HIDDEN}


@pytest.mark.parametrize(
    "raw",
    [SECRET.encode(), b"\xff\x00" + SECRET.encode(), b'{"card": "' + SECRET.encode(), b'["4929"]', b"[" * 100_000],
)
def test_what_cannot_be_decoded_is_shown_by_size_and_fingerprint(raw: bytes) -> None:
    """Equal contents have equal fingerprints; nothing of the content is shown."""
    hidden = Hidden(frozenset({("value", "card")}))
    text = hidden.text("value", raw)

    assert text is not None
    assert text.startswith(f"*** ({len(raw):,} bytes, fingerprint ")
    assert text == hidden.text("value", raw) != hidden.text("value", raw + b"1")
    assert hidden.raw("key", raw) == raw


def test_json_that_was_not_decoded_is_shown_without_the_field() -> None:
    """At any depth, under every spelling that JSON has for the name, and of fields of one name all."""
    hidden = Hidden(frozenset({("value", "card")}))
    raw = b'{"n": 1, "\\u0063ard": "4929", "card": "4929", "in": [{"card": {"a": "4929"}}], "odd": "\\ud800"}'

    text = hidden.text("value", raw)

    assert text is not None
    assert "4929" not in text
    assert json.loads(text)["in"] == [{"card": HIDDEN}]
    assert hidden.raw("value", raw) == text.encode()


def test_elements_of_arrays_are_hidden_by_the_name_of_their_field() -> None:
    """This includes fields inside of elements, which conditions read as JSON."""
    paths = "{card: 'value.items[].card', items: 'value.items[]', n: 'value.items[].n'}"
    text = ROUTE.format(
        options="type: DropHeaders, headers: Nothing", masked="card, predicate: {type: HasHeaderKey, name: A}"
    )
    route = Route.parse(f"{text}subscriptions: {{store: 'memory://cards', metadata: {paths}}}\n", {})
    items = [json.dumps({"card": SECRET, "n": 1}), json.dumps({"card": "7", "n": 2})]
    metadata = {"card": json.dumps([SECRET, "7"]), "items": json.dumps(items), "n": '["1","2"]'}

    shown = masked_metadata(route, metadata)

    assert SECRET not in json.dumps(shown)
    assert shown["n"] == '["1","2"]'
    assert [json.loads(item)["n"] for item in json.loads(shown["items"])] == [1, 2]
    assert SECRET not in json.dumps(masked_metadata(route, {"items": items[0]}))


def test_any_value_and_paths_below_a_prefix_are_hidden() -> None:
    """Which of all values is a masked one is not known, so that none is shown; nor may a condition look at them."""
    text = ROUTE.format(
        options="type: DropHeaders, headers: Nothing", masked="card, predicate: {type: HasHeaderKey, name: A}"
    )
    route = Route.parse(f"{text}subscriptions: {{store: 'memory://cards', metadata: {{'all.*': 'value.*'}}}}\n", {})
    metadata = {"*": json.dumps([SECRET, "t"]), "all.items[].card": json.dumps([SECRET]), "all.n": "1", "all.`": SECRET}

    shown = masked_metadata(route, metadata)
    assert (shown["*"], shown["all.n"]) == (HIDDEN, "1")
    assert SECRET not in json.dumps(shown)
    for looked_at in ("*:a", "all.card:a", "all.items[].card:a"):
        with pytest.raises(ConfigError, match="the route masks it"):
            check_condition(route, len(route.chain.stages), parse(looked_at))
    check_condition(route, len(route.chain.stages), parse("all.n:1"))


def test_why_a_run_failed_does_not_quote_the_record() -> None:
    """Its place, the stage and the class are shown."""
    sentence = f"topic orders.1, offset 7: TRANSFORMATION: org.apache.Cast$Value: one: Value ({SECRET}) is no number"

    assert masked_sentence(route_of("type: Filter", "card"), sentence) == (
        "topic orders.1, offset 7: TRANSFORMATION: ***"
    )
    assert SECRET not in masked_sentence(route_of("type: Filter", "card"), SECRET, known=False)
