"""The format ``avro``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np

from turnout.caches import LruCache
from turnout.codecs.avro.connect_schema import avro_schema_of, schema_text
from turnout.codecs.avro.plan import Plan
from turnout.codecs.avro.types import parse_schema
from turnout.codecs.codec import Decoded, EncodeErrors, attempt, with_tombstones
from turnout.codecs.schema_registry import (
    RegistryOptions,
    SchemaText,
    answered,
    frame,
    registry_of,
    subject_of,
    unframe,
)
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema

_SCHEMAS: Final = 256
"""Connect schemas whose Avro schema is kept."""

_PLANS: Final = 1000

AVRO_CONVERTER: Final = "io.confluent.connect.avro.AvroConverter"


class _AvroCodec:
    """Reader and writer of values with plans by schema."""

    format: ClassVar[str] = "avro"
    class_name: ClassVar[str] = AVRO_CONVERTER

    def __init__(self) -> None:
        # By identity: two ids may have equal schemas in Connect, and a value is written with the one it was read with.
        self._by_schema = LruCache[int, tuple[Schema, Plan]](_SCHEMAS)

    def encode(self, block: Block) -> list[bytes | None]:
        """See `turnout.codecs.Codec.encode`."""
        if block.schema is None:
            if block.kind == "null":
                return [None] * len(block)
            raise RecordError("the value has no schema, and Avro needs one")
        plan = self._plan_of(block.schema)
        if block.kind == "null" and plan.type.kind != "union":
            return [None] * len(block)
        try:
            return list(plan.encode(block))
        except RecordError as error:
            if len(block) == 1:
                raise EncodeErrors({0: error}, [None]) from error
        errors: dict[int, RecordError] = {}
        texts: list[bytes | None] = []
        for index in range(len(block)):
            try:
                texts += plan.encode(block.take(np.array([index], np.intp)))
            except RecordError as error:
                errors[index] = error
                texts.append(None)
        return attempt(texts, errors)

    def _plan_of(self, schema: Schema) -> Plan:
        known = self._by_schema.get(id(schema))
        if known is None:
            known = (schema, self._plan_to_write(schema))
            self._by_schema.add(id(schema), known)
        return known[1]

    def _plan_to_write(self, schema: Schema) -> Plan:
        raise NotImplementedError

    def _remember(self, plan: Plan) -> Plan:
        self._by_schema.add(id(plan.schema), (plan.schema, plan))
        return plan


class AvroFile(_AvroCodec):
    """Values of the schema of a file, without a header."""

    def __init__(self, text: str) -> None:
        """Create a codec of the schema in *text*.

        Raises:
            ValueError: it is no schema, or Connect has none for it.
        """
        super().__init__()
        self._plan = self._remember(Plan(parse_schema(text)))

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`."""
        return with_tombstones(rows, texts, self._plan.decode)

    def schema(self) -> Schema | None:
        """The schema of the file, in Connect."""
        return self._plan.schema

    def _plan_to_write(self, schema: Schema) -> Plan:
        if schema != self._plan.schema:
            raise RecordError(
                "the schema of the value was changed, and readers would not know it: they have the schema of the file; "
                "write Avro with a registry, or another format"
            )
        return self._plan


class AvroRegistry(_AvroCodec):
    """Values in Confluent's wire format, with schemas of a registry.

    Args:
        options: of the registry.
        strategy: of subjects' names, see `subject_of`.
        topic: in subjects' names.
        register: whether new schemas are registered; otherwise they are looked up.
    """

    def __init__(self, options: RegistryOptions, strategy: str, topic: str | None, *, register: bool = True) -> None:
        super().__init__()
        self._options = options
        self._registry = registry_of(options)
        self._strategy = strategy
        self._topic = topic
        self._register = register
        self._plans = LruCache[int, Plan](_PLANS)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`.

        Raises:
            RegistryUnavailableError: no server of the registry answers, and the route waits for one.
        """
        return with_tombstones(rows, texts, self._read)

    def schema(self) -> Schema | None:
        """Return None: values bring the id of their schema."""
        return None

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        framed = unframe(texts)
        errors = {int(rows[index]): error for index, error in framed.errors.items()}
        blocks: list[Block] = []
        for schema_id, indices in _groups(framed.ids):
            plan = self._plan_by_id(schema_id)
            where = rows if len(indices) == len(rows) else rows[indices]
            if isinstance(plan, RecordError):
                errors |= dict.fromkeys(where.tolist(), plan)
                continue
            chosen = texts if len(indices) == len(rows) else [texts[index] for index in indices.tolist()]
            more, failed = plan.decode(where, chosen)
            blocks += more
            errors |= failed
        return blocks, errors

    def _plan_by_id(self, schema_id: int) -> Plan | RecordError:
        plan = self._plans.get(schema_id)
        if plan is not None:
            return plan
        try:
            plan = self._made(answered(self._options, lambda: self._registry.by_id(schema_id)), schema_id)
        except RecordError as error:
            return error
        except ValueError as failure:
            return RecordError(f"the schema with the id {schema_id} cannot be used: {failure}")
        return self._remember(plan)

    def _made(self, schema: SchemaText, schema_id: int) -> Plan:
        if schema.type != "AVRO":
            raise ValueError(f"expected an Avro schema, found {schema.type}")
        plan = Plan(parse_schema(schema.text, schema.references), frame(schema_id, [b""])[0])
        self._plans.add(schema_id, plan)
        return plan

    def _plan_to_write(self, schema: Schema) -> Plan:
        for plan in reversed(self._plans.values()):
            if plan.schema == schema:
                return plan
        document = avro_schema_of(schema)
        text = schema_text(document)
        record = parse_schema(text)
        subject = subject_of(self._strategy, self._topic, record.name, key=self._options.of_keys)
        sent = SchemaText("AVRO", text)
        send = self._registry.register if self._register else self._registry.lookup
        schema_id = answered(self._options, lambda: send(subject, sent))
        return Plan(record, frame(schema_id, [b""])[0])


def _groups(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[int, Positions]]:
    """Yield each schema id with the indices of its values."""
    if not len(ids):
        return
    first = int(ids[0])
    if first >= 0 and bool((ids == first).all()):
        yield first, np.arange(len(ids))
        return
    for schema_id in np.unique(ids[ids >= 0]).tolist():
        yield schema_id, np.flatnonzero(ids == schema_id)
