"""Objects of rare shapes put together: a stage works on the fields that it names, and on all others at once.

A block has one shape, and each stage some work for each block: where nearly every record has a shape of its own, that
would be most of the work. Small schemaless blocks become one mixed block, a dict for each record. A transform that
changes only fields that it names gets these as columns; one that chooses or renames fields works object by object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from turnout.deferred import np
from turnout.records import Block, Positions, group
from turnout.records.grouping import SMALL
from turnout.untrusted import JsonObject

Objects = list[JsonObject]
"""Schemaless objects of a mixed block, which it owns."""


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


@dataclass(frozen=True, slots=True)
class EachObject:
    """The step makes a new object of each, and cannot fail.

    Attributes:
        convert: gives the new object.
    """

    convert: Callable[[JsonObject], JsonObject]


def mix(side: list[Block]) -> None:
    """Put the small schemaless blocks among these together, if there are several."""
    small = [block for block in side if _is_small(block)]
    if len(small) < 2:
        return
    rows = np.concatenate([block.rows for block in small])
    order = np.argsort(rows, kind="stable")
    members = list(chain.from_iterable(_owned(block) for block in small))
    mixed = Block.mixed(rows[order], [members[index] for index in order.tolist()])
    side[:] = [*(block for block in side if not _is_small(block)), mixed]


def split(side: list[Block]) -> None:
    """Put the objects of mixed blocks into a block for each shape again."""
    if any(block.kind == "mixed" for block in side):
        parts = [group(block.rows, None, block.whole()) if block.kind == "mixed" else [block] for block in side]
        side[:] = list(chain.from_iterable(parts))


def _is_small(block: Block) -> bool:
    if block.kind == "mixed":
        return True
    members = block.members
    return bool(members) and len(block) < SMALL and all(type(name) is str for name in (members or ({},))[0])


def _owned(block: Block) -> Objects:
    """Return the objects of a block as dicts that are not shared."""
    members: Sequence[JsonObject] = block.members or ()
    return list(members) if block.kind == "mixed" else [member.copy() for member in members]


def apply_by_fields(
    names: Sequence[str], rows: Positions, members: Objects, run: Callable[[Block], list[Block]]
) -> None:
    """Change objects by a step that sees only the fields *names* of them.

    Args:
        names: the fields.
        rows: rows of the objects in the batch.
        members: the objects; they are changed in place.
        run: the step, of a block with the fields that its objects have.
    """
    for present, indices in _by_presence(names, members):
        chosen = members if indices is None else [members[index] for index in indices]
        columns = {name: [member[name] for member in chosen] for name in present}
        block = Block(rows if indices is None else rows[indices], None, columns=columns)
        for part in run(block):
            changed = chosen
            if len(part) < len(chosen):
                changed = [chosen[index] for index in np.searchsorted(block.rows, part.rows).tolist()]
            for name, column in part.columns.items():
                if columns.get(name) is not column:
                    for member, value in zip(changed, column, strict=True):
                        member[name] = value


def _by_presence(names: Sequence[str], members: Objects) -> list[tuple[list[str], list[int] | None]]:
    """Group objects by the names that they have: these names, and the indices, None for all."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    flags = [[name in member for member in members] for name in names]
    if all(len(set(own)) == 1 for own in flags):
        return [([name for name, own in zip(names, flags, strict=True) if own[0]], None)]
    for index, presence in enumerate(zip(*flags, strict=True)):
        groups.setdefault(presence, []).append(index)
    return [
        ([name for name, is_there in zip(names, presence, strict=True) if is_there], indices)
        for presence, indices in groups.items()
    ]
