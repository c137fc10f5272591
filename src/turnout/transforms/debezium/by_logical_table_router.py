"""ByLogicalTableRouter: change events of several tables under one topic, with a key field that distinguishes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import numpy as np

from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Positions, Schema
from turnout.records.types import NewColumns
from turnout.transforms.base import Errors, Side, Transform, change_rows
from turnout.transforms.debezium.extract_new_record_state import PACKAGE, is_envelope
from turnout.transforms.fields import SCHEMA_BUILDER, read
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.options import BOOLEAN, INT, STRING, Option, OptionError, Options, java_regex, non_empty, one_of

_NOT_AVRO: Final = re.compile(r"[^A-Za-z0-9_.]")


def _pattern(value: str | None) -> str | None:
    return java_regex(value) if value else None


@dataclass(frozen=True, slots=True)
class ByLogicalTableRouter(Transform):
    """See ``summary``. Debezium's transform; keys and values without schemas are taken as well."""

    summary: ClassVar[str] = "Where the expression matches the whole topic, routes change events to another one."
    java_names: ClassVar[tuple[str, ...]] = (PACKAGE + "ByLogicalTableRouter",)
    sided: ClassVar[bool] = False
    keeps_paths: ClassVar[bool] = True
    schemas_by_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("topic.regex", STRING, "The expression.", check=java_regex, valid="java.util.regex"),
        Option(
            "topic.replacement",
            STRING,
            "The replacement, with $1 for groups.",
            check=non_empty,
            groups_of="topic.regex",
        ),
        Option("key.enforce.uniqueness", BOOLEAN, "Whether the key gets a field with the table.", default=True),
        Option("key.field.name", STRING, "The name of that field.", default="__dbz__physicalTableIdentifier"),
        Option(
            "key.field.regex",
            STRING,
            "What of the old topic that field has; without it the whole.",
            default="",
            check=_pattern,
            valid="java.util.regex",
        ),
        Option(
            "key.field.replacement",
            STRING,
            "Its replacement; needed with the expression.",
            default="",
            groups_of="key.field.regex",
        ),
        Option(
            "schema.name.adjustment.mode",
            STRING,
            "Whether characters that a name in Avro may not have become `_` in names of schemas.",
            default="none",
            check=one_of("none", "avro", any_case=True),
            valid="none, avro",
        ),
        Option("logical.table.cache.size", INT, "Has no effect: nothing is forgotten.", default=16),
    )

    topic_regex: str = ""
    topic_replacement: str = ""
    key_enforce_uniqueness: bool = True
    key_field_name: str = "__dbz__physicalTableIdentifier"
    key_field_regex: str = ""
    key_field_replacement: str = ""
    schema_name_adjustment_mode: str = "none"
    logical_table_cache_size: int = 16

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that an expression for the key has a replacement."""
        if options["key.field.regex"] and not options["key.field.replacement"]:
            raise OptionError("key.field.replacement", "is missing, and key.field.regex needs it")
        return super(ByLogicalTableRouter, cls).from_options(options, side)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Route the records of these rows, those of each topic together."""
        together: dict[str | None, list[int]] = {}
        for row, topic in zip(rows.tolist(), batch.by_row(batch.topics, rows), strict=True):
            together.setdefault(topic, []).append(row)
        errors: Errors = {}
        for old, row_ids in together.items():
            try:
                new = self._topic(old)
            except RecordError as error:
                errors.update(dict.fromkeys(row_ids, error))
                continue
            if old is not None and new:
                self._moved(batch, np.array(row_ids, np.intp), old, new, errors)
        return errors

    def _topic(self, old: str | None) -> str | None:
        """Return the new topic; None where the expression does not match."""
        if old is None:
            raise RecordError("the topic is null", "java.lang.NullPointerException")
        pattern = JavaRegex.of(self.topic_regex)
        return pattern.replaced(old, self.topic_replacement) if pattern.matches(old) else None

    def _moved(self, batch: Batch, rows: Positions, old: str, new: str, errors: Errors) -> None:
        """Change the topic, the keys and the events of these rows."""
        identifier = old
        if self.key_field_regex and JavaRegex.of(self.key_field_regex).matches(old):
            identifier = JavaRegex.of(self.key_field_regex).replaced(old, self.key_field_replacement)
        topics = list(batch.topics)
        for row in rows.tolist():
            topics[row] = new
        batch.topics = topics
        change_rows(batch.key, rows, errors, lambda block, _: self._key(block, new, identifier))
        change_rows(batch.value, rows, errors, lambda block, _: self._event(block, new))

    def _key(self, block: Block, topic: str, identifier: str) -> Block:
        if block.kind == "null":
            return block.nulls(None)
        if block.kind != "object":
            found = "another type" if block.schema is None else block.schema.type
            raise RecordError(f"Only Struct objects supported for [Updating schema], found: {found}")
        columns: NewColumns = dict(block.columns)
        schema = block.schema
        if self.key_enforce_uniqueness:
            if schema is not None and schema.field(self.key_field_name) is not None:
                problem = f'Cannot create field because of field name duplication "{self.key_field_name}"'
                raise RecordError(problem, SCHEMA_BUILDER)
            columns[self.key_field_name] = [identifier] * len(block)
        if schema is None:
            return block.with_columns(None, columns)
        added = (Field(self.key_field_name, Schema("string")),) if self.key_enforce_uniqueness else ()
        changed = schema.with_(name=self._name(f"{topic}.Key"), fields=(*schema.fields, *added), default=None)
        return block.with_columns(changed, columns, checked=block.checked)

    def _event(self, block: Block, topic: str) -> Block:
        """Return change events with the schema names of their new topic, otherwise unchanged."""
        schema = block.schema
        before = None if schema is None else schema.field("before")
        if schema is None or before is None or not is_envelope(block):
            return block
        row = before.with_(name=self._name(f"{topic}.Value"), default=None)
        fields = tuple(
            Field(field.name, row) if field.name in ("before", "after") else field for field in schema.fields
        )
        columns = {field.name: read(block, field) for field in schema.fields}
        changed = schema.with_(name=self._name(f"{topic}.Envelope"), fields=fields, default=None)
        return block.with_columns(changed, columns, checked=block.checked)

    def _name(self, name: str) -> str:
        """Return a schema's name, adjusted where the options say so."""
        if self.schema_name_adjustment_mode.lower() != "avro":
            return name
        adjusted = _NOT_AVRO.sub("_", name)
        return f"_{adjusted}" if adjusted[:1].isdigit() or adjusted[:1] == "." else adjusted
