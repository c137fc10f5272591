"""Base of sources and sinks, with the properties of their format for the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from turnout.base.untrusted import JsonObject
from turnout.nats.protocol.positions import stream_and_sequence
from turnout.routes.values import listed
from turnout.secrets import Secrecy, is_secret, masked_url
from turnout.subjects import matches
from turnout.subjects.pattern import check_pattern
from turnout.subscriptions.destinations import Timing


class Part(BaseModel):
    """A block of the route file: keys in camelCase, unknown ones refused, frozen once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True, strict=False, defer_build=True
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Return the fields that a printed block shows, without secrets."""
        secrets = secrets_of(type(self))
        for name, value in super().__repr_args__():
            yield name, "***" if name in secrets and value else _shown(value)


@cache
def secrets_of(model: type[BaseModel]) -> frozenset[str]:
    """Return the names, in both spellings, of the fields of a model that no view shows.

    They are declared `Secrecy.SECRET`; fields of a model that is not turnout's count by their names.
    """
    return frozenset(
        name
        for field, info in model.model_fields.items()
        if Secrecy.SECRET in info.metadata or (Secrecy.PUBLIC not in info.metadata and is_secret(field))
        for name in (field, info.alias or field)
    )


def _timing(kind: Literal["delay", "deliverAt"]) -> AfterValidator:
    def check(text: str | float | None) -> str | None:
        if text is not None:
            Timing.parse(kind, f"{text}")
        return None if text is None else f"{text}"

    return AfterValidator(check)


Delay = Annotated[str | int | float | None, _timing("delay")]
DeliverAt = Annotated[str | None, _timing("deliverAt")]

FORMAT_BLOCK: Final = "a format with its settings"
"""Comment of these in the JSON Schema of the models, which do not know the formats."""

FormatBlock = Annotated[JsonObject | None, WithJsonSchema({"type": ["object", "null"], "$comment": FORMAT_BLOCK})]
"""A format with its settings, checked by its codec."""

_OF_ROUTES: Final = frozenset(
    {"format", "allow", "lineage", "push_down", "empty_payload", "key_header", "key", "value", "delay", "deliver_at"}
)
"""Options that the route itself has, and not its reader or writer in Spark."""


class Endpoint(Part):
    """A source or a sink. Its fields are options of the Spark format of the same name, under the same name.

    Attributes:
        format: format of the endpoint.
    """

    format: str

    renamed: ClassVar[dict[str, str]] = {}
    """Keys that Spark knows by another name."""

    def options(self) -> dict[str, str]:
        """Return the options for Spark's reader or writer, without options that are not set."""
        written = self.model_dump(by_alias=True, exclude_none=True, exclude={*_OF_ROUTES})
        written.update(written.pop("options", {}))
        return {self.renamed.get(key, key): _option(value) for key, value in written.items()}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Addresses of the servers, without credentials; empty for formats without servers."""
        return tuple(url.rpartition("://")[2].rpartition("@")[2] for url in listed(getattr(self, "servers", None)))


class Source(Endpoint):
    """Options of every source, and its abilities; the defaults are those of a format without streams."""

    has_nulls: ClassVar[bool] = True
    """False if a value cannot be null, so that an empty one stands for it."""

    @property
    def empty_is_null(self) -> bool | None:
        """True if an empty value is a null where its format could have it; None by the format."""
        return None

    @property
    def key_of_header(self) -> str | None:
        """Name of the header with the key of a record; None where records have their own."""
        return None

    @property
    def keeps_history(self) -> bool:
        """True if records can be read again by their positions."""
        return bool(self.streams)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that can be read by sequence; empty for other formats."""
        return ()

    @property
    def only_stream(self) -> str | None:
        """Name of the only stream, so that records need not name it; None if there are several, or none."""
        return self.streams[0] if len(self.streams) == 1 else None

    @property
    def feed_problem(self) -> str | None:
        """Reason that records cannot be read again by the cursor of a feed; None if they can."""
        return "feeds need a source of format nats, or of format kafka with topics"

    @property
    def filters(self) -> tuple[str, ...]:
        """Patterns of the subjects that are read; empty for all."""
        return ()

    @property
    def is_bounded(self) -> bool:
        """True if the source is read once, as a whole."""
        return False

    @property
    def pushes_down(self) -> bool:
        """True if records that no subscription can match are filtered at the server."""
        return False

    def message(self, position: str) -> tuple[str, int]:
        """Return the stream and the sequence named by STREAM:SEQ, or by SEQ alone if the source has one stream.

        The stream has its identity behind its name if the text has it, as origins have.

        Raises:
            ValueError: it names no message of these streams.
        """
        position = position.strip()
        named = f"{self.only_stream}:{position}" if self.only_stream and ":" not in position else position
        message = stream_and_sequence(named)
        # Origins have the identity of the stream behind its name, which has no dot.
        if message is None or message[0].partition(".")[0] not in self.streams:
            expected = f"expected STREAM:SEQ with a stream of {', '.join(self.streams)}, as in {self.streams[0]}:17"
            raise ValueError(f"{expected}; found {position!r}")
        return message

    @property
    def named_topics(self) -> tuple[str, ...]:
        """Names of the topics that are read; empty for formats without, and for a pattern of names."""
        return ()

    def shares_servers_with(self, sink: Sink) -> bool:  # noqa: ARG002 - for formats with servers
        """Return True if messages of a sink are known to arrive where this source reads."""
        return False

    def returned_by(self, sink: Sink, patterns: tuple[str, ...]) -> Callable[[str], bool] | None:  # noqa: ARG002 - for others
        """Return a test for topics of a sink that this source reads itself; None if it reads none.

        Args:
            sink: a sink of the same route.
            patterns: patterns of its topics that are known to be fed back, see `turnout.runtime.preflight`.
        """
        return (lambda topic: any(matches(pattern, topic) for pattern in patterns)) if patterns else None


class Sink(Endpoint):
    """Options of every sink, in addition to the options of its format, and its abilities."""

    takes_keys: ClassVar[bool] = True
    """False if messages have no key."""

    restricts_headers: ClassVar[bool] = False
    """True if some names and values of headers cannot be written."""

    topics_are_addresses: ClassVar[bool] = True
    """False if a topic is a mere value, so that a message needs none and no topic is protected."""

    keys_name_deliveries: ClassVar[bool] = False
    """True if all deliveries to webhooks are in one topic, and what would be a subject is their key."""

    replaced_headers: ClassVar[frozenset[str]] = frozenset()
    """Names, in lower case, of headers that the sink writes itself: a record's own are left out."""

    instructions: ClassVar[frozenset[str]] = frozenset()
    """Names, in lower case, of headers that it forwards although they instruct the server."""

    can_wait: ClassVar[bool] = False
    """True if messages can be delivered at a later time."""

    position_form: ClassVar[str | None] = None
    """Notation of a message's position, with an example; None if single messages cannot be read again."""

    allow: list[Annotated[str, AfterValidator(check_pattern)]] | None = Field(
        None, description="patterns of the permitted destinations; null for all that are not protected"
    )
    lineage: bool | None = Field(
        None, description="true: messages say by headers which route, revision and record they were made from"
    )
    key: FormatBlock = Field(None, description="how keys are written; as the route reads them if not given")
    value: FormatBlock = Field(None, description="how values are written; as the route reads them if not given")

    @property
    def timing(self) -> Timing | None:
        """Time of the sink's messages; None if they are delivered at once."""
        return None

    def with_schedules(self, subject: str) -> Self:  # noqa: ARG002 - for other formats
        """Return the sink for a route whose waiting messages it schedules itself, under subjects that begin so."""
        return self

    @property
    def with_ids(self) -> bool:
        """True if messages get ids, as far as the format has them."""
        return True

    @property
    def prefixes(self) -> tuple[str, ...]:
        """First tokens of topics that are requests of the connection's own, or answers to them."""
        return ()

    @property
    def has_transactions(self) -> bool:
        """True if each split of a micro-batch is delivered in one transaction."""
        return False

    def topic_problem(self, topic: str) -> str | None:  # noqa: ARG002 - for other formats
        """Return the reason that no message can have this topic; None if one can."""
        return None

    def parse_position(self, position: str) -> tuple[str, int] | None:  # noqa: ARG002 - for other formats
        """Return the stream and the sequence that a text in `position_form` names; None for another text."""
        return None

    def with_deliveries(self, subject: str, stream: str) -> Self:  # noqa: ARG002 - for other formats
        """Return the sink for a route whose deliveries to webhooks it stores.

        Args:
            subject: first tokens of the subjects of deliveries.
            stream: stream or topic of the deliveries.
        """
        return self

    def shares_letters_with(self, other: Sink) -> bool:  # noqa: ARG002 - for other formats
        """Return True if a message for the other sink could pass for a dead letter that is read from this one."""
        return False


class TimedSink(Sink):
    """Sink whose messages can be delivered later."""

    can_wait: ClassVar[bool] = True

    delay: Delay = Field(
        None,
        description="messages are delivered so long after their record's time: seconds, 15m, PT15M, or a path",
    )
    deliver_at: DeliverAt = Field(
        None, description="messages are delivered at this time: an ISO time, or a path, as in value.due or header.Due"
    )

    @property
    def timing(self) -> Timing | None:
        """Time of the sink's messages; None if they are delivered at once."""
        if self.deliver_at is not None:
            return Timing.parse("deliverAt", self.deliver_at)
        return None if self.delay is None else Timing.parse("delay", str(self.delay))

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if self.delay is not None and self.deliver_at is not None:
            raise ValueError("delay and deliverAt exclude each other")
        return self


@dataclass(frozen=True, slots=True)
class EndpointFormat:
    """Format of sources and sinks, or a family of formats with the same options.

    The adapters are named, not imported: each belongs to a layer above this one.

    Attributes:
        tag: name of the family, unlike that of any option.
        names: values of ``format`` that mean it.
        source: model of a source.
        sink: model of a sink.
        adapter: ``module:class`` of its `turnout.runtime.endpoints.EndpointAdapter`.
        spark: ``module:class`` of its `turnout.spark.endpoints.SparkEndpoint`.
        deliveries: ``module:function`` that opens the queue of a sink's deliveries to webhooks, as an asynchronous
            context of a `turnout.delivery.queue.DeliveryQueue`; None if the sink stores none.
    """

    tag: str
    names: tuple[str, ...]
    source: type[Source]
    sink: type[Sink]
    adapter: str
    spark: str
    deliveries: str | None = None


def _shown(value: object) -> object:
    if isinstance(value, dict):
        return {name: "***" if is_secret(str(name)) else _shown(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return masked_url(value) if isinstance(value, str) else value


def _option(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return json.dumps(value) if isinstance(value, dict) else str(value)
