"""Templates of new routes."""

from __future__ import annotations

import pytest

from turnout.console.route_templates import TEMPLATES
from turnout.routes import Route


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_a_whole_route(name: str) -> None:
    """The template is complete, without notes of missing parts."""
    assert Route.parse(TEMPLATES[name][1]).name == "orders"
