"""Sources and sinks: what may be written under ``source:``, ``sink:`` and ``sinks:`` for each format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, create_model, model_validator
from pydantic.alias_generators import to_camel

from turnout.nats.protocol.options import LOGINS, REQUIRED_WITH, ConnectionSettings, option_of
from turnout.nats.protocol.positions import stream_and_sequence
from turnout.routes.values import (
    Brokers,
    Filters,
    JavaPattern,
    KafkaStart,
    KafkaTopics,
    NatsServers,
    Prefix,
    StreamName,
    StreamNames,
    StreamStart,
    listed,
)
from turnout.secrets import is_secret, masked_url
from turnout.subscriptions.destinations import check_pattern

SECRETS = frozenset({"password", "token", "nkeySeed", "servers"})
"""Keys whose values are not shown in errors; a server's address may hold a password."""

Names = str | list[str]


class Part(BaseModel):
    """A block of the route file: keys in camelCase, unknown ones refused, frozen once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True, strict=False
    )


class Endpoint(Part):
    """A source or a sink. Its fields are options of the Spark format of the same name, under the same name.

    Attributes:
        format: what is at the other end.
    """

    format: str

    renamed: ClassVar[dict[str, str]] = {}
    """Keys that Spark knows by another name."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return the fields that a printed endpoint shows, without secrets."""
        for name, value in super().__repr_args__():
            secret = name is not None and is_secret(name) and value is not None
            yield name, "***" if secret else masked_url(value) if isinstance(value, str) else value

    def options(self) -> dict[str, str]:
        """Return the options for Spark's reader or writer, without options that are not set."""
        written = self.model_dump(by_alias=True, exclude_none=True, exclude={"format", "allow", "lineage", "push_down"})
        written.update(written.pop("options", {}))
        return {self.renamed.get(key, key): _option(value) for key, value in written.items()}


class _Sink(Endpoint):
    """Options of every sink, in addition to the options of its format."""

    allow: list[Annotated[str, AfterValidator(check_pattern)]] | None = Field(
        None, description="patterns of the destinations that may be reached; null for all that are not protected"
    )
    lineage: bool | None = Field(
        None, description="true: messages say by headers which route, revision and record they were made from"
    )


def _option(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


if TYPE_CHECKING:

    class _Connecting(ConnectionSettings, Endpoint): ...

else:
    # A field of the model for each of the settings, with its type, its default and what is said of it.
    _Connecting = create_model(
        "_Connecting",
        __base__=Endpoint,
        __doc__=ConnectionSettings.__doc__,
        **{
            name: (kind, getattr(ConnectionSettings, name, ...))
            for name, kind in get_type_hints(ConnectionSettings).items()
        },
    )


class _Nats(_Connecting):
    """Connection to a nats-server; see docs/nats.md for each option."""

    format: Literal["nats"]
    servers: NatsServers
    api_prefix: Prefix = None
    domain: StreamName = None
    inbox_prefix: Prefix = None
    timeout: float | None = Field(None, gt=0)
    connect_timeout: float | None = Field(None, gt=0)
    reconnect_timeout: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_way_in(self) -> _Nats:
        if self.api_prefix is not None and self.domain is not None:
            raise ValueError("apiPrefix and domain exclude each other: a domain is the prefix $JS.<domain>.API")
        logins = [option_of(name) for name in LOGINS if getattr(self, name) is not None]
        if len(logins) > 1:
            raise ValueError(f"{' and '.join(logins)} exclude each other: one way to log in is enough")
        for name, other in REQUIRED_WITH:
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise ValueError(f"{option_of(name)} needs {option_of(other)} beside it")
        return self


class NatsSource(_Nats):
    """A JetStream stream, read in sequence order.

    Attributes:
        filter_subject: only these subjects, wildcards allowed.
        max_records_per_trigger: the most sequences in a micro-batch, over all streams.
        max_bytes_per_trigger: the same in bytes, by the mean size of the stream's messages.
        fail_on_data_loss: fail when messages that were to be read are gone (the default), or warn and go on.
    """

    stream: StreamNames = Field(description="the name of the stream, or a list of names")
    start: StreamStart = Field(
        "earliest", description="earliest, latest, a sequence, an ISO time, or a sequence for each stream"
    )
    filter_subject: Filters = None
    max_records_per_trigger: int | None = Field(None, gt=0)
    max_bytes_per_trigger: int | None = Field(None, gt=0)
    partitions: int | None = Field(None, gt=0, description="tasks that read at the same time, at most")
    fail_on_data_loss: bool | None = None
    poll_wait: int | None = Field(None, gt=0, description="seconds to wait at the server for the next message")
    ack_consumer: StreamName = Field(None, description="acknowledge what is committed, as this durable consumer")
    push_down: bool | None = Field(
        None, description="true: leave records at the server whose subjects no subscription can want; false by default"
    )

    renamed: ClassVar[dict[str, str]] = {"start": "startingOffsets"}

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return listed(self.stream)

    @property
    def only_stream(self) -> str | None:
        """Name of the only stream, so that records need not name it; None if the source has several."""
        return self.streams[0] if len(self.streams) == 1 else None

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects that are read; none for all."""
        return listed(self.filter_subject)

    def message(self, place: str) -> tuple[str, int]:
        """Return the stream and the sequence named by STREAM:SEQ, or by SEQ alone if the source has one stream.

        Raises:
            ValueError: it names no message of these streams.
        """
        place = place.strip()
        named = f"{self.only_stream}:{place}" if self.only_stream and ":" not in place else place
        message = stream_and_sequence(named)
        if message is None or message[0] not in self.streams:
            expected = f"expected STREAM:SEQ with a stream of {', '.join(self.streams)}, as in {self.streams[0]}:17"
            raise ValueError(f"{expected}; found {place!r}")
        return message

    @model_validator(mode="after")
    def _push_down_fits(self) -> NatsSource:
        if self.push_down and self.ack_consumer is not None:
            raise ValueError("pushDown and ackConsumer exclude each other: what is acknowledged is read by sequence")
        return self

    @model_validator(mode="after")
    def _start_fits(self) -> NatsSource:
        if isinstance(self.start, dict) and set(self.streams) != set(self.start):
            start = ", ".join(self.start) or "none"
            names = ", ".join(sorted(set(self.streams)))
            raise ValueError(f"start: found sequences for {start}, expected one for each of {names}")
        return self


class NatsSink(_Nats, _Sink):
    """JetStream: every message is acknowledged before a micro-batch counts as done."""

    stream: StreamName = Field(None, description="the stream that must take the messages; null for any")
    window: int | None = Field(None, gt=0, le=10_000, description="messages in flight per task")
    message_id: Literal["origin", "none"] | None = Field(
        None, description="origin: an id from where the record came from, so that nothing is stored twice; none: no id"
    )

    forward_headers: list[str] | None = Field(
        None, description="names of headers that instruct the server and go on all the same: Nats-TTL"
    )

    def options(self) -> dict[str, str]:
        """Return the format's options; its ``messageId`` names a column, which here is computed from the origin."""
        return {key: value for key, value in super().options().items() if key != "messageId"}


class _Kafka(Endpoint):
    """Connection to a Kafka cluster; client properties go under ``options`` as ``kafka.…``.

    Attributes:
        options_: more options of Spark's connector; those of Kafka's client begin with kafka.
    """

    format: Literal["kafka"]
    servers: Brokers = Field(description="host:port, or a list of them")
    options_: dict[str, str | int | bool] = Field(default_factory=dict, alias="options")

    renamed: ClassVar[dict[str, str]] = {"servers": "kafka.bootstrap.servers"}


class KafkaSource(_Kafka):
    """Kafka topics, through Spark's own connector.

    Attributes:
        end: where to stop, for a route that does all there is: latest, or offsets by topic and partition.
        max_records_per_trigger: the most offsets in a micro-batch.
        fail_on_data_loss: fail when records that were to be read are gone (the default), or warn and go on.
    """

    topics: KafkaTopics = Field(None, description="topics to read")
    topic_pattern: JavaPattern = Field(None, description="or a Java regular expression of topics")
    start: KafkaStart = Field("earliest", description="earliest, latest or offsets by topic and partition")
    end: str | dict[str, Any] | None = None
    max_records_per_trigger: int | None = Field(None, gt=0)
    fail_on_data_loss: bool | None = None

    renamed: ClassVar[dict[str, str]] = {
        **_Kafka.renamed,
        "topics": "subscribe",
        "topicPattern": "subscribePattern",
        "start": "startingOffsets",
        "end": "endingOffsets",
        "maxRecordsPerTrigger": "maxOffsetsPerTrigger",
    }

    @model_validator(mode="after")
    def _one_choice(self) -> KafkaSource:
        if (self.topics is None) == (self.topic_pattern is None):
            raise ValueError("needs exactly one of topics and topicPattern")
        return self


class KafkaSink(_Kafka, _Sink):
    """Kafka topics: at least once, as Spark's connector is."""


class _Files(Endpoint):
    """A folder of files that hold the record's columns.

    Attributes:
        path: the folder, as Spark takes it.
        options_: more options of Spark's format.
    """

    format: Literal["json", "parquet", "csv"]
    path: str
    options_: dict[str, str | int | bool] = Field(default_factory=dict, alias="options")


class FileSource(_Files):
    """Files, read once; with ``stream: true``, new files are read as they appear.

    Attributes:
        stream: whether new files are read as they come.
        max_files_per_trigger: the most files in a micro-batch.
    """

    stream: bool = False
    max_files_per_trigger: int | None = Field(None, gt=0)

    def options(self) -> dict[str, str]:
        """Return the format's options, without our own switch."""
        return {key: value for key, value in super().options().items() if key not in ("stream", "path")}


class FileSink(_Files, _Sink):
    """Files, appended to; a micro-batch that is done again writes its rows again.

    Attributes:
        partition_by: the columns that make folders.
    """

    partition_by: Names | None = None

    def options(self) -> dict[str, str]:
        """Return the format's options, without options that the writer gets by other means."""
        return {key: value for key, value in super().options().items() if key not in ("path", "partitionBy")}


FORMATS = ("nats", "kafka", "json", "parquet", "csv")


def kind_of(endpoint: object) -> str | None:
    """Return the discriminator of an endpoint's block, for pydantic to choose the model."""
    name = endpoint.get("format") if isinstance(endpoint, dict) else getattr(endpoint, "format", None)
    return {"json": "files", "parquet": "files", "csv": "files"}.get(name, name) if isinstance(name, str) else None


Source = Annotated[
    Annotated[NatsSource, Tag("nats")] | Annotated[KafkaSource, Tag("kafka")] | Annotated[FileSource, Tag("files")],
    Discriminator(kind_of),
]
Sink = Annotated[
    Annotated[NatsSink, Tag("nats")] | Annotated[KafkaSink, Tag("kafka")] | Annotated[FileSink, Tag("files")],
    Discriminator(kind_of),
]
TAGS = ("nats", "kafka", "files")
"""What pydantic puts into an error's place for the chosen family; not part of the author's path."""
