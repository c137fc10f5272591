"""Sinks that replace a route's own, to deliver messages again or to inspect them."""

from __future__ import annotations

from dataclasses import replace

import yaml
from pydantic import ValidationError

from turnout.base.yaml_values import load
from turnout.errors import ConfigError, Mistake
from turnout.routes.endpoints import AnySink, Part, Sink
from turnout.routes.mistakes import from_validation
from turnout.routes.route import Route


class _Document(Part):
    sink: AnySink


def with_sink(route: Route, sink_or_name: str | Sink) -> Route:
    """Return the route with all messages directed to one sink, regardless of the sink a destination names.

    Args:
        route: the route.
        sink_or_name: a sink, the name of one of the route's, or the text of a block as in a route file:
            ``{format: json, path: replayed}``.

    Raises:
        ConfigError: lists every mistake in the block.
    """
    sink = route.sinks.get(sink_or_name) if isinstance(sink_or_name, str) else sink_or_name
    return replace(route, sinks=dict.fromkeys(route.sinks, sink or _parsed(str(sink_or_name), route)))


def _parsed(text: str, route: Route) -> Sink:
    try:
        block = load(text)
    except yaml.YAMLError as failure:
        # The whole message quotes the text, which may hold a password.
        raise ConfigError([Mistake("sink", f"is no YAML: {getattr(failure, 'problem', '')}")]) from None
    if not isinstance(block, dict):
        names = ", ".join(name for name in route.sinks if name) or "none with a name"
        expected = f"a sink of the route (there are {names}) or a block like {{format: json, path: FOLDER}}"
        raise ConfigError([Mistake("sink", f"expected {expected}, found {text!r}")])
    document = {"sink": block}
    try:
        return _Document.model_validate(document).sink
    except ValidationError as failure:
        raise ConfigError(list(from_validation(failure, document, {}, _Document)), what="bad sink") from None
