"""Objects of several shapes put together: a stage works on the fields that it names, and on all others at once.

A block has one shape, and each stage some work for each block: where nearly every record has a shape of its own, that
would be most of the work. A mixed block has schemaless objects of several shapes. A transform that changes only fields
that it names gets these as columns; one that chooses or renames fields changes the layout of each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from turnout.base.deferred import np
from turnout.records import Block, Positions
from turnout.records.spans import MixedObjects


@dataclass(frozen=True, slots=True, eq=False)
class ByNames:
    """The step chooses, renames or orders fields, and cannot fail.

    Attributes:
        change: returns the new names of an object, and what each old one stood for.
    """

    change: Callable[[Mapping[str, int]], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ByFields:
    """The step depends on these fields alone, and changes no others; added fields are last.

    Attributes:
        names: the fields, each once.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, paths: Iterable[tuple[str, ...]]) -> ByFields | None:
        """Return the step on the fields with these paths; None where one is inside of another field."""
        names = dict.fromkeys(paths)
        return cls(tuple(path[0] for path in names)) if all(len(path) == 1 for path in names) else None

    def applied(
        self, objects: MixedObjects, rows: Positions, indices: Positions | None, run: Callable[[Block], list[Block]]
    ) -> MixedObjects:
        """Return objects changed by a step that sees only these fields of them.

        Args:
            objects: the objects.
            rows: the row of each in the batch.
            indices: those that are changed; None for all.
            run: the step, of a block with the fields that its objects have.
        """
        for own, columns in objects.fields(self.names, indices):
            block = Block(rows[own], None, columns=columns)
            for part in run(block):
                of_part = own if len(part) == len(own) else own[np.searchsorted(block.rows, part.rows)]
                for name, column in part.columns.items():
                    if columns.get(name) is not column:
                        objects = objects.with_field(name, column, None if len(of_part) == len(rows) else of_part)
        return objects


def split(side: list[Block]) -> None:
    """Put the objects of mixed blocks into a block for each shape."""
    if any(block.kind == "mixed" for block in side):
        side[:] = chain.from_iterable(_of_shapes(block) if block.kind == "mixed" else [block] for block in side)


def _of_shapes(block: Block) -> list[Block]:
    return [
        Block(block.rows[indices], None, columns=dict(zip(names, columns, strict=True)))
        for indices, names, columns in block.mixed_objects.parts()
    ]
