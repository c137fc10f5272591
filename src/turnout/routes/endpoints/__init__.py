"""Sources and sinks: contents of ``source:``, ``sink:`` and ``sinks:`` for each format."""

from turnout.routes.endpoints.base import Endpoint, Part, Sink, Source, secrets_of
from turnout.routes.endpoints.files import FileSink, FileSource
from turnout.routes.endpoints.formats import FORMATS, TAGS, AnySink, AnySource, kind_of
from turnout.routes.endpoints.kafka import KafkaSink, KafkaSource
from turnout.routes.endpoints.nats import NatsSink, NatsSource
from turnout.routes.endpoints.tables import (
    DeltaSink,
    DeltaSource,
    IcebergSink,
    IcebergSource,
    LakeSink,
    LakeSource,
    Lookup,
    LookupPart,
    SparkSink,
    SparkSource,
    TableSink,
    TableSource,
)

__all__ = [
    "FORMATS",
    "TAGS",
    "AnySink",
    "AnySource",
    "DeltaSink",
    "DeltaSource",
    "Endpoint",
    "FileSink",
    "FileSource",
    "IcebergSink",
    "IcebergSource",
    "KafkaSink",
    "KafkaSource",
    "LakeSink",
    "LakeSource",
    "Lookup",
    "LookupPart",
    "NatsSink",
    "NatsSource",
    "Part",
    "Sink",
    "Source",
    "SparkSink",
    "SparkSource",
    "TableSink",
    "TableSource",
    "kind_of",
    "secrets_of",
]
