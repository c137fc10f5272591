"""Route files written for their author: from a connector, from a nats-server's configuration, or from a stream."""

from turnout.routes.drafts.connector import draft_of_connector
from turnout.routes.drafts.nats_server import draft_of_server
from turnout.routes.drafts.route_draft import Adoption, Draft, Omission, route_name, sink_of, source_of
from turnout.routes.drafts.starter import SampledMessage, SampledStream, Starter

__all__ = [
    "Adoption",
    "Draft",
    "Omission",
    "SampledMessage",
    "SampledStream",
    "Starter",
    "draft_of_connector",
    "draft_of_server",
    "route_name",
    "sink_of",
    "source_of",
]
