"""``turnout feed``."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.documentation import blocks
from tests.feeds import FedRoute
from turnout.cli.app import build_app
from turnout.routes import Route
from turnout.subscriptions import open_store

runner = CliRunner()


def test_a_feed_is_printed_from_any_place(fed: FedRoute) -> None:
    """The output is JSON lines or text; --limit ends it."""
    command = ["feed", "oulu", "--route", str(fed.file)]

    lines = runner.invoke(build_app(), [*command, "--json", "--from", "4", "--limit", "2"])
    text = runner.invoke(build_app(), command)

    assert [json.loads(line)["cursor"] for line in lines.stdout.splitlines()] == [5, 7]
    assert text.stdout.count('"city":"Oulu"') == 5


def test_a_feed_has_the_bodies_that_a_subscription_computes(fed: FedRoute) -> None:
    """As its destinations would have them, by the expression of now; others keep the record's value."""
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    with open_store(fed.store_url) as store:
        oulu = store.read("oulu")
        store.update("oulu", replace(oulu, project="{'number': value.n, 'of': topic}"))
    values = {}
    for id_ in ("oulu", "turku"):
        command = ["feed", id_, "--route", str(fed.file), "--json", "--limit", "2"]
        lines = runner.invoke(build_app(), command).stdout.splitlines()
        values[id_] = [json.loads(line)["value"] for line in lines]

    topic = fed.streams.subject("order")
    assert [json.loads(value) if isinstance(value, str) else value for value in values["oulu"]] == [
        {"number": 0, "of": topic},
        {"number": 2, "of": topic},
    ]
    assert [json.loads(value) if isinstance(value, str) else value for value in values["turku"]] == [
        {"n": 1, "city": "Turku"},
        {"n": 3, "city": "Turku"},
    ]


def test_an_unknown_subscription_is_an_error(fed: FedRoute) -> None:
    """The work failed: its id is named."""
    result = runner.invoke(build_app(), ["feed", "nobody", "--route", str(fed.file)])

    assert result.exit_code != 0
    assert "nobody" in str(result.exception)


def test_the_route_of_the_page_can_be_loaded() -> None:
    """The route also stores feeds."""
    block, *_ = blocks("feeds.md", "yaml")

    route = Route.parse(block.text)

    assert route.subscriptions is not None
    assert route.subscriptions.feeds
