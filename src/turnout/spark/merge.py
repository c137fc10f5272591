"""A key or value after a stage: what the stage made where it was done, what was there before elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from turnout.spark.schemas import spark_type
from turnout.spark.typed import Object, Struct, Typed
from turnout.transforms.schema import Field, Schema

__all__ = ["Merge"]


class Merge:
    """One stage's changes, each under a new name.

    Args:
        done: the rows that the stage has changed; None where it changes all.
        name: gives a name that no column has.
        guarded: whether the rows that are not done live on. Without a guard they have failed or were dropped.

    Attributes:
        columns: what has to be added to the frame, by name.
    """

    def __init__(self, done: Column | None, name: Callable[[], str], *, guarded: bool) -> None:
        self.done = done
        self.guarded = guarded and done is not None
        self.columns: dict[str, Column] = {}
        self._name = name

    def side(self, old: Typed, new: Typed) -> Typed:
        """The key or value after the stage, with one type for all rows.

        Where types differ, the rows of a guarded stage become variants; the dead rows of others get null.
        """
        if new is old:
            return old
        same = spark_type(old.schema).simpleString() == spark_type(new.schema).simpleString()
        if self.guarded and not same:
            return self._whole(new.variant(), old.variant(), None)
        schema = _common(old.schema, new.schema) if self.guarded else new.schema
        if isinstance(old, Struct) and isinstance(new, Struct) and schema is not None:
            return self._parts(old, new, schema, same=same)
        if isinstance(old, Object) and isinstance(new, Object):
            return self._object(old, new)
        return self._whole(new.column, old.column if same else None, schema)

    def _named(self, column: Column) -> Column:
        name = self._name()
        self.columns[name] = column
        return F.col(name)

    def _whole(self, new: Column, old: Column | None, schema: Schema | None) -> Typed:
        if self.done is not None:
            new = F.when(self.done, new) if old is None else F.when(self.done, new).otherwise(old)
        return Typed(self._named(new), schema)

    def _parts(self, old: Struct, new: Struct, schema: Schema, *, same: bool) -> Struct:
        """The fields that are not what they were get a column; the others keep theirs."""
        before = old.parts if same else ()
        kept = [column for _, column in old.parts]
        parts: list[tuple[str, Column]] = []
        for at, (name, column) in enumerate(new.parts):
            there = before[at][1] if same else next((one for one in kept if one is column), None)
            if column is not there:
                if self.done is not None:
                    column = F.when(self.done, column) if there is None else F.when(self.done, column).otherwise(there)
                column = self._named(column)
            parts.append((name, column))
        present = new.maybe
        if self.done is None:
            if present is not None and present is not old.maybe:
                present = self._named(present)
        elif not same:
            present = self._named(self.done & new.present)
        elif present is not old.maybe:
            present = self._named(F.when(self.done, new.present).otherwise(old.present))
        return Struct(parts, present, schema)

    def _object(self, old: Object, new: Object) -> Object:
        """Fields that are not what they were get a column, null where there is no object to have them."""
        changed: dict[str, Column | None] = {}
        done = new.is_object if self.done is None else self.done & new.is_object
        for name, column in new.changed.items():
            there = old.changed.get(name)
            if name in old.changed and column is there:
                changed[name] = column
            elif column is None and self.done is None:
                changed[name] = None
            else:
                made = F.lit(None).cast("variant") if column is None else column
                before = old.get(name) if self.done is not None else F.lit(None).cast("variant")
                changed[name] = self._named(F.when(done, made).otherwise(before))
        base = old.base
        if new.base is not old.base:
            base = self._named(new.base if self.done is None else F.when(self.done, new.base).otherwise(old.column))
        return Object(base, new.is_object, changed)


def _common(old: Schema | None, new: Schema | None) -> Schema | None:
    """What two schemas of one Spark type agree on; optional where either is."""
    if old is None or new is None or old == new:
        return new
    fields = tuple(
        Field(b.name, _common(a.schema, b.schema) or b.schema) for a, b in zip(old.fields, new.fields, strict=False)
    )
    same = {name: getattr(new, name) for name in _ATTRIBUTES if getattr(old, name) == getattr(new, name)}
    return Schema(
        new.type, optional=old.optional or new.optional, fields=fields, keys=new.keys, values=new.values, **same
    )


_ATTRIBUTES = ("default", "name", "version", "doc", "parameters")
