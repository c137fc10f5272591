"""Registry of endpoint formats: the models of sources and sinks, and their adapters in the layers above."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Discriminator, Tag

from turnout.base.startup import entry_points
from turnout.routes.endpoints.base import Endpoint, EndpointFormat, Sink, Source
from turnout.routes.endpoints.files import FileSink, FileSource
from turnout.routes.endpoints.kafka import KafkaSink, KafkaSource
from turnout.routes.endpoints.nats import NatsSink, NatsSource
from turnout.routes.endpoints.tables import (
    DeltaSink,
    DeltaSource,
    IcebergSink,
    IcebergSource,
    SparkSink,
    SparkSource,
    TableSource,
)

ENTRY_POINT = "turnout.endpoints"
"""The entry point group in which a package names its endpoint formats, each an `EndpointFormat`.

Its module imports `turnout.routes.endpoints.base` alone; the adapters are in modules of their own.
"""


_BUILT_IN = (
    EndpointFormat(
        "nats",
        ("nats",),
        NatsSource,
        NatsSink,
        "turnout.runtime.nats.adapter:NatsAdapter",
        "turnout.spark.formats.nats.endpoint:NatsEndpoint",
        "turnout.delivery.streams:opened_streams",
    ),
    EndpointFormat(
        "kafka",
        ("kafka",),
        KafkaSource,
        KafkaSink,
        "turnout.runtime.kafka.adapter:KafkaAdapter",
        "turnout.spark.formats.kafka.endpoint:KafkaEndpoint",
        "turnout.delivery.kafka_queue:opened_topics",
    ),
    EndpointFormat(
        "files",
        ("json", "parquet", "csv", "avro"),
        FileSource,
        FileSink,
        "turnout.runtime.lake.adapter:FileAdapter",
        "turnout.spark.formats.tables:FileEndpoint",
    ),
    EndpointFormat(
        "spark",
        ("spark",),
        SparkSource,
        SparkSink,
        "turnout.runtime.lake.adapter:SparkAdapter",
        "turnout.spark.formats.tables:SparkProvider",
    ),
    EndpointFormat(
        "delta",
        ("delta",),
        DeltaSource,
        DeltaSink,
        "turnout.runtime.lake.adapter:LakeAdapter",
        "turnout.spark.formats.lake:LakeEndpoint",
    ),
    EndpointFormat(
        "iceberg",
        ("iceberg",),
        IcebergSource,
        IcebergSink,
        "turnout.runtime.lake.adapter:LakeAdapter",
        "turnout.spark.formats.lake:LakeEndpoint",
    ),
)
_ALL: tuple[EndpointFormat, ...] = (
    *_BUILT_IN,
    *(entry_point.load() for entry_point in entry_points(group=ENTRY_POINT)),
)
_BY_NAME: dict[str, EndpointFormat] = {name: format_ for format_ in reversed(_ALL) for name in format_.names}

FORMATS = tuple(name for format_ in _ALL for name in format_.names)
"""Values of ``format``."""

WITH_DELIVERIES = tuple(name for format_ in _ALL if format_.deliveries is not None for name in format_.names)
"""Formats whose sinks store deliveries to webhooks."""

TYPED = tuple(name for format_ in _ALL if issubclass(format_.source, TableSource) for name in format_.names)
"""Formats whose sources have typed values."""

TAGS = tuple(format_.tag for format_ in _ALL)
"""Names of the families in the paths of pydantic's errors; not part of the author's path."""


def format_of(endpoint: Endpoint) -> EndpointFormat:
    """Return the format of an endpoint."""
    return _BY_NAME[endpoint.format]


def kind_of(endpoint: object) -> str | None:
    """Return the discriminator of an endpoint's block, for pydantic to choose the model."""
    name = endpoint.get("format") if isinstance(endpoint, dict) else getattr(endpoint, "format", None)
    if not isinstance(name, str):
        return None
    return _BY_NAME[name].tag if name in _BY_NAME else name


if TYPE_CHECKING:
    AnySource = Source
    AnySink = Sink
else:
    AnySource = Annotated[reduce(or_, (Annotated[one.source, Tag(one.tag)] for one in _ALL)), Discriminator(kind_of)]
    AnySink = Annotated[reduce(or_, (Annotated[one.sink, Tag(one.tag)] for one in _ALL)), Discriminator(kind_of)]
