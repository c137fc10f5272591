"""New routes from templates."""

from __future__ import annotations

import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text
from turnout.console.pages.route import TEMPLATES
from turnout.routes import Route


def text_in(page: str) -> str:
    return unescape(re.findall(r'<textarea id="text"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)[0])


def test_the_text_is_that_of_a_template_or_of_another_route(bench: Bench, console: TestClient) -> None:
    """Templates are links; a route of the server is copied."""
    bench.start("a")

    assert text_in(console.get("/new-route?template=kafka").text) == TEMPLATES["kafka"][1]
    assert text_in(console.get("/new-route?like=a").text) == bench.routes.entry("a").file.text
    assert console.get("/new-route?like=nobody").status_code == 404
    assert text_in(console.get("/new-route?template=<script>").text) == ""


def test_a_text_is_checked_before_it_is_written(bench: Bench, console: TestClient) -> None:
    """Its mistakes, a name that is taken, or what it means and a button; nothing is written."""
    bench.start("a")
    check = lambda text: console.post("/fragments/new-route/check", json={"text": text}).text  # noqa: E731

    assert "Line 2</a>: not YAML" in check("name: [\n")
    assert "there is a route a already" in check(route_text("a"))
    checked = check(route_text("<b>"))
    assert "<b>" not in checked
    checked = check(route_text("b"))
    assert 'data-json="PUT" action="/v1/routes/b" data-then="/routes/b"' in checked
    assert [entry.name for entry in bench.routes.entries()] == ["a"]


def test_names_of_a_new_text_are_looked_up_in_its_source(shown: TestClient) -> None:
    """In the latest records of the stream that it would read; nothing is written or delivered."""
    text = shown.get("/v1/routes/orders").json()["text"].replace("name: orders", "name: other", 1)

    checked = shown.post("/fragments/new-route/check", json={"text": text}).text
    looked_up = shown.post("/fragments/new-route/names", json={"text": text.replace("city:town", "ctiy:town")}).text

    assert 'action="/fragments/new-route/names"' in checked
    assert "<code>value.ctiy</code>" in looked_up
    assert '<strong class="bad">0 of ' in looked_up


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_whole_route(name: str) -> None:
    """The template is complete, without notes of missing parts."""
    assert Route.parse(TEMPLATES[name][1]).name == "orders"
