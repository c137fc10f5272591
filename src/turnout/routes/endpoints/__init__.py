"""Sources and sinks: contents of ``source:``, ``sink:`` and ``sinks:`` for each format."""

from turnout.routes.endpoints.base import Endpoint, Part, Sink, Source
from turnout.routes.endpoints.files import FileSink, FileSource
from turnout.routes.endpoints.formats import FORMATS, SECRETS, TAGS, AnySink, AnySource, kind_of
from turnout.routes.endpoints.kafka import KafkaSink, KafkaSource
from turnout.routes.endpoints.nats import NatsSink, NatsSource

__all__ = [
    "FORMATS",
    "SECRETS",
    "TAGS",
    "AnySink",
    "AnySource",
    "Endpoint",
    "FileSink",
    "FileSource",
    "KafkaSink",
    "KafkaSource",
    "NatsSink",
    "NatsSource",
    "Part",
    "Sink",
    "Source",
    "kind_of",
]
