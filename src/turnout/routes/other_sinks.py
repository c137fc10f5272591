"""Sinks that replace a route's own, to deliver messages again or to inspect them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml
from pydantic import ValidationError

from turnout.base.yaml_values import load
from turnout.errors import ConfigError, Mistake
from turnout.routes.endpoints import AnySink, Part, Sink
from turnout.routes.endpoints.tables import MATCHES
from turnout.routes.files import FileNames
from turnout.routes.mistakes import from_validation
from turnout.routes.route import Route
from turnout.routes.written_formats import WrittenFormats, written_format


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
    if isinstance(sink_or_name, str) and sink_or_name in route.sinks:
        sink, formats = route.sinks[sink_or_name], route.formats_of(sink_or_name)
    else:
        sink = _parsed(sink_or_name, route) if isinstance(sink_or_name, str) else sink_or_name
        formats = _formats(sink, route)
    names = dict.fromkeys(name for name in route.sinks if name != MATCHES)
    # It is not the sink in which messages of the route wait.
    sinks, written = dict.fromkeys(names, sink), dict.fromkeys(names, formats)
    return replace(route, sinks=sinks, written=written, at_once=True)


def _formats(sink: Sink, route: Route) -> WrittenFormats:
    """Return the formats of a sink that is none of the route's; names of files start at the route's folder."""
    files = FileNames((route.file or Path()).parent)
    read = WrittenFormats(route.key, route.value)
    own = {
        side: written_format(block, getattr(read, side), side, files)[0]
        for side in read._fields
        if (block := getattr(sink, side)) is not None
    }
    return read._replace(**own)


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
