"""``turnout feed``."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tests.documentation import blocks
from tests.feeds import FedRoute
from turnout.cli.app import build_app
from turnout.routes import Route

runner = CliRunner()


def test_a_feed_is_printed_from_any_place(fed: FedRoute) -> None:
    """The output is JSON lines or text; --limit ends it."""
    command = ["feed", "oulu", "--route", str(fed.file)]

    lines = runner.invoke(build_app(), [*command, "--json", "--from", "4", "--limit", "2"])
    text = runner.invoke(build_app(), command)

    assert [json.loads(line)["cursor"] for line in lines.stdout.splitlines()] == [5, 7]
    assert text.stdout.count('"city":"Oulu"') == 5


def test_an_unknown_subscription_is_an_error(fed: FedRoute) -> None:
    """The work failed: its id is named."""
    result = runner.invoke(build_app(), ["feed", "nobody", "--route", str(fed.file)])

    assert result.exit_code != 0
    assert "nobody" in str(result.exception)


def test_the_route_of_the_page_can_be_loaded() -> None:
    """The route also stores feeds."""
    (block,) = (block for block in blocks("feeds.md", "yaml"))

    route = Route.parse(block.text)

    assert route.subscriptions is not None
    assert route.subscriptions.feeds
