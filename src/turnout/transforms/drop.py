"""Drop: null in the place of a key or a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnout.errors import RecordError
from turnout.records import Batch, Block, Shape
from turnout.transforms.base import Errors, Step, Transform
from turnout.transforms.checks import one_of
from turnout.transforms.options import Option


@dataclass(frozen=True, slots=True)
class Drop(Transform):
    """See ``summary``. Confluent's transform."""

    summary: ClassVar[str] = "Sets the key or the value to null."
    java_names: ClassVar[tuple[str, ...]] = ("io.confluent.connect.transforms.Drop",)
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "schema.behavior",
            "STRING",
            "What becomes of the schema: none, the same, the same if it is optional, or the same made optional.",
            default="nullify",
            check=one_of("nullify", "retain", "validate", "force_optional", any_case=True),
            valid="nullify, retain, validate, force_optional",
        ),
    )

    schema_behavior: str = "nullify"

    def plan(self, shape: Shape) -> Step:
        """Choose the schema of the nulls."""
        behavior, schema = self.schema_behavior.lower(), shape.schema
        if behavior == "nullify":
            schema = None
        elif behavior == "force_optional" and schema is not None:
            schema = schema.with_(optional=True)
        elif behavior == "validate" and schema is not None and not schema.optional:
            raise RecordError(f"the schema of the {self.root} is not optional, so that it cannot be null")

        def run(block: Block, _where: Sequence[bool] | None, _batch: Batch, _errors: Errors) -> Block:
            return block.nulls(schema)

        return Step(run)
