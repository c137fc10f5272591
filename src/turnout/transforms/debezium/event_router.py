"""EventRouter: the messages of an outbox table out of its change events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np

from turnout.records import Batch, Block, Positions
from turnout.transforms.base import HEADERS, KEY, VALUE, Errors, Move, NamedField, Side, Transform
from turnout.transforms.debezium.extract_new_record_state import PACKAGE
from turnout.transforms.debezium.outbox import PAYLOAD, OutboxMessages
from turnout.transforms.options import BOOLEAN, LIST, STRING, Option, OptionError, Options, java_regex, non_null, one_of

_PLACEMENTS: Final = ("header", "envelope", "partition")


class AdditionalField(NamedTuple):
    """Column of the outbox that is added to its messages.

    Attributes:
        column: its name in the table.
        placement: header, envelope or partition.
        alias: its name in the message.
    """

    column: str
    placement: str
    alias: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``column:placement`` or ``column:placement:alias``.

        Raises:
            ValueError: it is neither.
        """
        parts = [part.strip() for part in text.split(":")]
        if len(parts) not in (2, 3) or not all(parts) or parts[1].lower() not in _PLACEMENTS:
            raise ValueError(
                f"expected column:placement or column:placement:alias, placement one of "
                f"{', '.join(_PLACEMENTS)}, found {text!r}"
            )
        return cls(parts[0], parts[1].lower(), parts[-1] if len(parts) == 3 else parts[0])


@dataclass(frozen=True, slots=True)
class EventRouter(Transform):
    """See ``summary``. Debezium's transform; events without schemas are taken as well.

    Attributes:
        id_column: column of the message's id, which is the header ``id``.
        key_column: column of the message's key.
        payload_column: column of its value.
        timestamp_column: column of its timestamp; empty for the event's own.
        version_column: column of the version of the envelope's schema; empty for none.
        route_column: column of the value that gives the topic.
        additional: further columns.
        skips_missing: whether additional columns that are missing are left out; otherwise the record fails.
        invalid: treatment of updates: warn, error or fatal.
        expands: whether a payload that is a JSON text becomes a value.
        keeps_nulls: whether nulls of such a text are fields of optional bytes.
        tombstones: whether an empty payload becomes a null.
        regex: expression for the routed value.
        replacement: the topic where it matches.
    """

    summary: ClassVar[str] = (
        "Makes messages of the change events of an outbox table: id, key, payload and topic by columns."
    )
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "outbox.EventRouter",)
    sided: ClassVar[bool] = False
    schemas_by_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("table.field.event.id", STRING, "The column of the id, which becomes the header `id`.", default="id"),
        Option("table.field.event.key", STRING, "The column of the key.", default="aggregateid"),
        Option("table.field.event.type", STRING, "Has no effect: `type` is added by a placement.", default="type"),
        Option("table.field.event.payload", STRING, "The column of the payload.", default="payload"),
        Option(
            "table.field.event.timestamp",
            STRING,
            "The column of the timestamp; without it the time of the event.",
            default="",
        ),
        Option(
            "table.fields.additional.placement",
            LIST,
            "Further columns: `type:header`, `kind:envelope:type`, `shard:partition`.",
            default=(),
        ),
        Option(
            "table.field.additional.missing",
            STRING,
            "Whether a further column that is missing fails the record.",
            default="error",
            check=one_of("error", "ignore", any_case=True),
            valid="error, ignore",
        ),
        Option(
            "table.field.event.schema.version",
            STRING,
            "The column of the version of the envelope's schema.",
            default="",
        ),
        Option(
            "table.op.invalid.behavior",
            STRING,
            "Updates are dropped with a line in the log, or with fatal fail.",
            default="warn",
            check=one_of("warn", "error", "fatal", any_case=True),
            valid="warn, error, fatal",
        ),
        Option("table.expand.json.payload", BOOLEAN, "Whether a payload of JSON text becomes a value.", default=False),
        Option(
            "table.json.payload.null.behavior",
            STRING,
            "Whether a null in it is left out, or a field of optional bytes.",
            default="ignore",
            check=one_of("ignore", "optional_bytes", any_case=True),
            valid="ignore, optional_bytes",
        ),
        Option("route.by.field", STRING, "The column that gives the topic.", default="aggregatetype"),
        Option(
            "route.topic.regex",
            STRING,
            "The expression for its value.",
            default="(?<routedByValue>.*)",
            check=java_regex,
            valid="java.util.regex",
        ),
        Option(
            "route.topic.replacement",
            STRING,
            "The topic where the expression matches the whole value.",
            default="outbox.event.${routedByValue}",
            check=non_null,
            groups_of="route.topic.regex",
        ),
        Option("route.tombstone.on.empty.payload", BOOLEAN, "Whether an empty payload becomes a null.", default=False),
        Option("tracing.span.context.field", STRING, "Has no effect.", default="tracingspancontext"),
        Option("tracing.operation.name", STRING, "Has no effect.", default="debezium-read"),
        Option("tracing.with.context.field.only", BOOLEAN, "Has no effect.", default=False),
    )

    id_column: str = "id"
    key_column: str = "aggregateid"
    payload_column: str = "payload"
    timestamp_column: str = ""
    version_column: str = ""
    route_column: str = "aggregatetype"
    additional: tuple[AdditionalField, ...] = ()
    skips_missing: bool = False
    invalid: str = "warn"
    expands: bool = False
    keeps_nulls: bool = False
    tombstones: bool = False
    regex: str = ""
    replacement: str = ""

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the placements."""
        placements = "table.fields.additional.placement"
        try:
            additional = tuple(AdditionalField.parse(text) for text in options[placements] or () if text)
        except ValueError as problem:
            raise OptionError(placements, str(problem)) from None
        return cls(
            side,
            options["table.field.event.id"],
            options["table.field.event.key"],
            options["table.field.event.payload"],
            options["table.field.event.timestamp"] or "",
            options["table.field.event.schema.version"] or "",
            options["route.by.field"],
            additional,
            options["table.field.additional.missing"].lower() == "ignore",
            options["table.op.invalid.behavior"].lower(),
            options["table.expand.json.payload"],
            options["table.json.payload.null.behavior"].lower() == "optional_bytes",
            options["route.tombstone.on.empty.payload"],
            options["route.topic.regex"],
            options["route.topic.replacement"],
        )

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE,)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`. The columns are fields of the new row."""
        columns = [
            ("table.field.event.id", self.id_column),
            ("table.field.event.key", self.key_column),
            ("table.field.event.payload", self.payload_column),
            ("table.field.event.timestamp", self.timestamp_column),
            ("table.field.event.schema.version", self.version_column),
            ("route.by.field", self.route_column),
            *(("table.fields.additional.placement", one.column) for one in self.additional),
        ]
        yield from (NamedField(option, Side.VALUE, ("after", column)) for option, column in columns if column)

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`. Records that are no events keep everything where it is."""
        enveloped = any(field.placement == "envelope" for field in self.additional)
        payload = (VALUE, PAYLOAD) if enveloped else (VALUE,)
        moves = [(self.id_column, (HEADERS, "id")), (self.key_column, (KEY,)), (self.payload_column, payload)]
        moves += [
            (field.column, (HEADERS if field.placement == "header" else VALUE, field.alias))
            for field in self.additional
            if field.placement != "partition"
        ]
        return tuple(Move((VALUE, "after", column), target, copy=True) for column, target in moves)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Replace the events of these rows by the messages of their rows in the outbox."""
        work = OutboxMessages(self, batch)
        chosen = np.zeros(len(batch), np.bool_)
        chosen[rows] = True
        values: list[Block] = []
        for block in batch.value:
            values.append(block.take(np.flatnonzero(~chosen[block.rows])))
            values += work.messages(block.take(np.flatnonzero(chosen[block.rows])))
        work.finish([block for block in values if len(block)])
        return work.errors
