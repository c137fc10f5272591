"""Adapters of endpoint formats: all requests to a format's servers without Spark.

A format registers its adapter in `turnout.routes.endpoints.formats`; other modules call `adapter_of` and know no
format.
"""

from __future__ import annotations

from pkgutil import resolve_name

from turnout.routes.endpoints import Endpoint
from turnout.routes.endpoints.formats import format_of
from turnout.runtime.endpoints.adapter import EndpointAdapter, EndpointProbe, SourceHistory, SourceSession, StreamEnd

__all__ = ["EndpointAdapter", "EndpointProbe", "SourceHistory", "SourceSession", "StreamEnd", "adapter_of"]


def adapter_of(endpoint: Endpoint) -> EndpointAdapter:
    """Return the adapter of an endpoint, by its format."""
    adapter: EndpointAdapter = resolve_name(format_of(endpoint).adapter)(endpoint)
    return adapter
