"""SetSchemaMetadata: give the struct's schema a name or a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.errors import RecordError
from turnout.records import Batch, Block, Schema, Shape
from turnout.transforms.base import REPLACE_NULL, Errors, Side, Step, Transform, mistake, unchanged
from turnout.transforms.options import Option, Options
from turnout.transforms.struct_fields import copied


@dataclass(frozen=True, slots=True)
class SetSchemaMetadata(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Sets the name, the version or both of a struct's schema."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("schema.name", "STRING", "The name.", default=None),
        Option("schema.version", "INT", "The version.", default=None),
        REPLACE_NULL,
    )

    schema_name: str | None = None
    schema_version: int | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Check that the options set a name or a version."""
        if options["schema.name"] is None and options["schema.version"] is None:
            raise mistake("", "expected schema.name, schema.version or both")
        return super(SetSchemaMetadata, cls).from_options(options, side)

    def plan(self, shape: Shape) -> Step:
        """Copies structs under the new schema; Connect lists the fields of every schema, and so takes no other type."""
        if shape.schema is None:
            if shape.kind == "null":
                return Step(unchanged)
            raise RecordError("Schema required for [updating schema metadata]")
        if shape.schema.type != "struct":
            raise RecordError(f"Cannot list fields on non-struct type: {shape.schema.type}")
        schema = self._renamed(shape.schema)

        def run(block: Block, _where: object, _batch: Batch, errors: Errors) -> Block:
            if block.kind == "null":
                return block.nulls(schema)
            columns = copied(block, errors, defaults=self.replace_null_with_default)
            return block.with_columns(schema, columns, checked=block.checked)

        return Step(run)

    def _renamed(self, schema: Schema) -> Schema:
        if self.schema_name is not None:
            schema = schema.with_(name=self.schema_name)
        return schema if self.schema_version is None else schema.with_(version=self.schema_version)
