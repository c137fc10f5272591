"""JetStream streams as a source and as a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeAlias, get_type_hints

from pydantic import AfterValidator, Field, PrivateAttr, create_model, model_validator

from turnout.base.options import camel_case
from turnout.nats.protocol.headers import UNFIT_NAME, instructs_server
from turnout.nats.protocol.options import LOGINS, REQUIRED_WITH, ConnectionOptions, ConnectionSettings
from turnout.nats.protocol.positions import stream_and_sequence
from turnout.routes.endpoints.base import Endpoint, Sink, Source, TimedSink
from turnout.routes.values import Filters, NatsServers, Prefix, StreamName, StreamNames, StreamStart, listed
from turnout.subjects.pattern import FULL
from turnout.subscriptions.destinations import problem_of

if TYPE_CHECKING:

    class _Connecting(ConnectionSettings, Endpoint): ...

else:
    # A field of the model for each of the settings, with its type, its default and its description.
    _Connecting = create_model(
        "_Connecting",
        __base__=Endpoint,
        __doc__=ConnectionSettings.__doc__,
        **{
            name: (kind, getattr(ConnectionSettings, name, ...))
            for name, kind in get_type_hints(ConnectionSettings, include_extras=True).items()
        },
    )


def _key_header(name: str) -> str:
    if UNFIT_NAME.search(name) or name.lower().startswith(("nats-", "__")):
        raise ValueError(f"found {name!r}, expected the name of a header without Nats- or __ at its beginning")
    return name


KeyHeader: TypeAlias = Annotated[str, AfterValidator(_key_header)] | None


class NatsEndpoint(_Connecting):
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
    def _one_way_in(self) -> NatsEndpoint:
        if self.api_prefix is not None and self.domain is not None:
            raise ValueError("apiPrefix and domain exclude each other: a domain is the prefix $JS.<domain>.API")
        logins = [camel_case(name) for name in LOGINS if getattr(self, name) is not None]
        if len(logins) > 1:
            raise ValueError(f"{' and '.join(logins)} exclude each other: one way to log in is enough")
        for name, other in REQUIRED_WITH:
            if getattr(self, name) is not None and getattr(self, other) is None:
                raise ValueError(f"{camel_case(name)} needs {camel_case(other)} beside it")
        return self

    @property
    def connection(self) -> ConnectionOptions:
        """Options of a connection to the server; files with credentials are read anew each time.

        Raises:
            ConfigError: lists every mistake, such as a file that cannot be read.
        """
        return ConnectionOptions.from_mapping(self.options())


class NatsSource(NatsEndpoint, Source):
    """A JetStream stream, read in sequence order.

    Attributes:
        filter_subject: only these subjects, wildcards allowed.
        max_records_per_trigger: the most sequences in a micro-batch, over all streams.
        max_bytes_per_trigger: the same in bytes, by the mean size of the stream's messages.
        fail_on_data_loss: fail if unread messages were deleted (the default), or warn and continue.
    """

    stream: StreamNames = Field(description="the name of the stream, or a list of names")
    start: StreamStart = Field(
        "earliest",
        description="earliest, latest, a sequence, an ISO time (UTC without a zone), or a sequence for each stream",
    )
    filter_subject: Filters = None
    max_records_per_trigger: int | None = Field(None, gt=0)
    max_bytes_per_trigger: int | None = Field(None, gt=0)
    partitions: int | None = Field(None, gt=0, description="tasks that read at the same time, at most")
    fail_on_data_loss: bool | None = None
    poll_wait: int | None = Field(None, gt=0, description="seconds to wait at the server for the next message")
    ack_consumer: StreamName = Field(None, description="acknowledge committed messages, as this durable consumer")
    push_down: bool | None = Field(
        None,
        description="true: filter records that no subscription can match at the server; false by default",
    )
    empty_payload: Literal["tombstone", "value"] | None = Field(
        None,
        description="tombstone: an empty payload is a null, the default; value: it is an empty value in raw, string"
        " and bytes",
    )
    key_header: KeyHeader = Field(
        None, description="the header with the record's key, as a sink's keyHeader writes it; Nats-Msg-Id by default"
    )

    has_nulls: ClassVar[bool] = False
    renamed: ClassVar[dict[str, str]] = {"start": "startingOffsets"}

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return listed(self.stream)

    @property
    def feed_problem(self) -> str | None:
        """Reason that the names of several streams cannot be in a cursor."""
        several = self.streams if len(self.streams) > 1 else ()
        found = next((name for name in several if {",", ":"} & {*name}), None)
        return f"feeds need names of streams without : and , and found {found!r}" if found else None

    @property
    def empty_is_null(self) -> bool | None:
        """True if an empty payload is a null where its format could have it; None by the format."""
        return None if self.empty_payload is None else self.empty_payload == "tombstone"

    @property
    def key_of_header(self) -> str | None:
        """Name of the header with the key of a record; None for ``Nats-Msg-Id``, which readers take."""
        return self.key_header

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects that are read; none for all."""
        return listed(self.filter_subject)

    def shares_servers_with(self, sink: Sink) -> bool:
        """Return True for a sink with the same servers and login: accounts of a server know nothing of each other."""
        return isinstance(sink, NatsSink) and all(
            getattr(self, name) == getattr(sink, name) for name in NatsEndpoint.model_fields
        )

    @property
    def pushes_down(self) -> bool:
        """True if records that no subscription can match are filtered at the server."""
        return bool(self.push_down)

    @model_validator(mode="after")
    def _push_down_fits(self) -> NatsSource:
        if self.push_down and self.ack_consumer is not None:
            raise ValueError("pushDown and ackConsumer exclude each other: acknowledged messages are read by sequence")
        return self

    @model_validator(mode="after")
    def _start_fits(self) -> NatsSource:
        if isinstance(self.start, dict) and set(self.streams) != set(self.start):
            start = ", ".join(self.start) or "none"
            names = ", ".join(sorted(set(self.streams)))
            raise ValueError(f"start: found sequences for {start}, expected one for each of {names}")
        return self


class NatsSink(NatsEndpoint, TimedSink):
    """JetStream: every message is acknowledged before a micro-batch counts as done."""

    restricts_headers: ClassVar[bool] = True
    replaced_headers: ClassVar[frozenset[str]] = frozenset({"nats-msg-id"})
    position_form: ClassVar[str | None] = "STREAM:SEQ, as in DELIVERED:17"

    stream: StreamName = Field(
        None, description="the stream that must take the messages, dead letters included; null for any"
    )
    window: int | None = Field(None, gt=0, le=10_000, description="messages in flight per task")
    message_id: Literal["origin", "none"] | None = Field(
        None, description="origin: an id from the record's origin, so that nothing is stored twice; none: no id"
    )

    forward_headers: list[str] | None = Field(
        None, description="names of headers that instruct the server and are forwarded nevertheless: Nats-TTL"
    )

    key_header: KeyHeader = Field(
        None, description="the header that keeps the record's key, for example Kafka-Key; null leaves keys out"
    )

    _schedules: str | None = PrivateAttr(None)

    @property
    def schedules(self) -> str | None:
        """First tokens of the subjects of the route's schedules; None where no stream of this sink publishes them."""
        return self._schedules

    def with_schedules(self, subject: str) -> Self:
        """Return the sink, whose streams publish waiting messages."""
        sink = self.model_copy()
        sink._schedules = subject  # noqa: SLF001 - of the copy
        return sink

    @property
    def takes_keys(self) -> bool:  # type: ignore[override]
        """True if the key has a header."""
        return self.key_header is not None

    def options(self) -> dict[str, str]:
        """Return the format's options; its ``messageId`` names a column, which here is computed from the origin."""
        options = {key: value for key, value in super().options().items() if key != "messageId"}
        return options if self.writable is None else {**options, "allow": ",".join(self.writable)}

    @property
    def writable(self) -> tuple[str, ...] | None:
        """Patterns of subjects for the writer, which protects the server's own.

        What else ``allow`` leaves out the engine does not deliver; the route's dead letters are written all the same.
        """
        return None if self.allow is None else (FULL, *self.allow)

    @property
    def instructions(self) -> frozenset[str]:  # type: ignore[override]
        """See `Sink.instructions`."""
        names = {name.strip().lower() for name in self.forward_headers or ()}
        return frozenset(name for name in names if instructs_server(name))

    @property
    def prefixes(self) -> tuple[str, ...]:
        """See `Sink.prefixes`."""
        return tuple(prefix.rstrip(".") for prefix in (self.api_prefix, self.inbox_prefix) if prefix)

    @property
    def with_ids(self) -> bool:
        """True if messages get ids, so that the server stores none twice."""
        return self.message_id != "none"

    def topic_problem(self, topic: str) -> str | None:
        """Return the reason that no message can be published on this subject; None if one can."""
        return problem_of(topic)

    def parse_position(self, position: str) -> tuple[str, int] | None:
        """Return the stream and the sequence that STREAM:SEQ names; None for another text."""
        return stream_and_sequence(position)

    def shares_letters_with(self, other: Sink) -> bool:
        """Return True if both sinks name a server in common."""
        return isinstance(other, NatsSink) and not set(listed(self.servers)).isdisjoint(listed(other.servers))
