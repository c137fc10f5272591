"""Views of records and failures without masked values."""

from __future__ import annotations

import json

import pytest

from tests.history.masked_routes import ROUTE, SECRET, route_of
from turnout.conditions import parse
from turnout.errors import ConfigError
from turnout.history.masked_views import check_condition, masked_metadata, masked_sentence
from turnout.history.masking import HIDDEN
from turnout.routes import Route


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
