"""A chain at work: a batch through its stages, each for the records that its predicates let through (KIP-585)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from turnout.base.deferred import np
from turnout.errors import RecordError
from turnout.records import ALIVE, Batch, Block, Failure, Positions, Shape
from turnout.records.spans import PatchedColumn, SpanColumn, Spans
from turnout.records.types import Column
from turnout.transforms.base import Errors, Mask, Side, Step
from turnout.transforms.filter import Filter
from turnout.transforms.mixed_blocks import ByFields, ByNames, split

if TYPE_CHECKING:
    from turnout.transforms.chain import Chain, Stage

_PLANS = 10_000
"""Maximum number of shapes for which a stage caches its plans; the cache is cleared when it is full."""


class ChainRunner:
    """Applies a chain to batches, and caches its plans.

    Args:
        chain: the chain.
    """

    def __init__(self, chain: Chain) -> None:
        self.stages = tuple(
            StageRunner(stage, lenient=chain.errors.failed_predicates == "not-matched") for stage in chain.stages
        )

    def apply(self, batch: Batch) -> None:
        """Put the batch through every stage."""
        for stage in self.stages:
            stage.apply(batch)


@dataclass(slots=True)
class StageRunner:
    """Runner of one stage of a chain.

    Attributes:
        stage: the transform with its guards.
        lenient: a failing predicate leaves its stage out (KIP-585's draft), in place of a failure of the stage.
        noted: for the last batch, the rows whose predicates failed and were passed over.
    """

    stage: Stage
    lenient: bool = False
    noted: dict[int, Failure] = field(default_factory=dict)
    _plans: dict[Shape, Step | RecordError] = field(default_factory=dict)
    _latest: tuple[Shape, Step | RecordError] | None = None
    _mixed: ByFields | ByNames | None = None
    _ignores_values: bool = False

    def __post_init__(self) -> None:
        transform = self.stage.transform
        guards_do = all(guard.predicate.takes_mixed for guard in self.stage.guards)
        self._mixed = transform.mixed() if transform.sided and guards_do else None
        self._ignores_values = guards_do and transform.ignores_values

    def apply(self, batch: Batch) -> None:
        """Put the batch through this stage."""
        stage = self.stage
        if self._mixed is None and not self._ignores_values:
            split(batch.key)
            split(batch.value)
        rows = self._rows(batch)
        if not len(rows):
            return
        if stage.transform.sided:
            self._apply_to_side(batch, rows)
        else:
            self._fail(batch, stage.transform.apply(batch, rows))

    def _rows(self, batch: Batch) -> Positions:
        """Return the rows of the records that the stage is for."""
        stage, alive = self.stage, batch.alive
        if not stage.guards:
            self.noted = {}
            return alive
        errors: Errors = {}
        holds: Mask | None = None
        for guard in stage.guards:
            answer = guard.predicate.test(batch, errors)
            answer = ~answer if guard.negate else answer
            holds = answer if holds is None else holds & answer
        assert holds is not None
        holds = ~holds if stage.negate else holds
        failures = {row: error for row, error in errors.items() if batch.outcomes[row] == ALIVE}
        if failures:
            holds = holds.copy()
            # The draft of KIP-585: what cannot be tested is not transformed, whatever negate says, but is filtered.
            holds[list(failures)] = self.lenient and isinstance(stage.transform, Filter)
        self.noted = {row: self._failure(error) for row, error in failures.items()} if self.lenient else {}
        rows = alive[holds[alive]]
        if not self.lenient:
            self._fail(batch, failures)
        return rows

    def _side(self, batch: Batch) -> list[Block]:
        """Return the keys or the values of a batch, as a transform that has a side works on them."""
        return batch.key if self.stage.transform.side == Side.KEY else batch.value

    def _apply_to_side(self, batch: Batch, rows: Positions) -> None:
        side = self._side(batch)
        errors: Errors = {}
        applies: Mask | None = None
        if len(rows) < len(batch):
            applies = np.zeros(len(batch), np.bool_)
            applies[rows] = True
        blocks = [self._block(batch, block, applies, errors) for block in side]
        side[:] = [block for block in chain.from_iterable(blocks) if len(block)]
        self._fail(batch, errors)

    def _block(self, batch: Batch, block: Block, applies: Mask | None, errors: Errors) -> list[Block]:
        """Apply the stage to one block; *errors* is by row."""
        chosen = None if applies is None else applies[block.rows]
        if block.kind == "mixed":
            return [self._run_mixed(batch, block, chosen, errors)]
        if chosen is None or chosen.all():
            return self._run(batch, block, None, errors)
        if not chosen.any():
            return [block]
        step = self._step(block.shape)
        if isinstance(step, Step) and step.in_place:
            return self._run(batch, block, chosen.tolist(), errors)
        others = block.take(np.flatnonzero(~chosen))
        return _joined([others, *self._run(batch, block.take(np.flatnonzero(chosen)), None, errors)])

    def _run(self, batch: Batch, block: Block, where: list[bool] | None, errors: Errors) -> list[Block]:
        wrong: Errors = {}
        try:
            step = self._step(block.shape)
            if isinstance(step, RecordError):
                raise step
            result = step.run(block, where, batch, wrong)
        except RecordError as error:
            rows = block.rows if where is None else block.rows[np.array(where)]
            errors.update(dict.fromkeys(rows.tolist(), error))
            return [block]
        errors.update((int(block.rows[index]), why) for index, why in wrong.items())
        return result if isinstance(result, list) else [result]

    def _run_mixed(self, batch: Batch, block: Block, chosen: Mask | None, errors: Errors) -> Block:
        """Apply the stage to the chosen objects of a mixed block."""
        objects, step = block.mixed_objects, self._mixed
        indices = None if chosen is None or chosen.all() else np.flatnonzero(chosen)
        if isinstance(step, ByNames):
            objects = objects.changed(step, step.change, indices)
        elif step is not None:
            objects = step.applied(objects, block.rows, indices, lambda part: self._run(batch, part, None, errors))
        return Block.mixed(block.rows, objects)

    def _step(self, shape: Shape) -> Step | RecordError:
        """Return the plan for a shape, or the error if it has none."""
        # Batch by batch, a schema is mostly the same object: to find it by its fields takes longer than a small step.
        if self._latest is not None and shape.schema is not None:
            latest, plan = self._latest
            if latest.schema is shape.schema and latest.kind == shape.kind:
                return plan
        step = self._plans.get(shape)
        if step is None:
            step = self._planned(shape)
        self._latest = shape, step
        return step

    def _planned(self, shape: Shape) -> Step | RecordError:
        """Plan a shape, and cache the plan."""
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        step: Step | RecordError
        try:
            step = self.stage.transform.plan(shape)
        except RecordError as refusal:
            step = refusal
        self._plans[shape] = step
        return step

    def _fail(self, batch: Batch, errors: Errors) -> None:
        batch.fail({row: self._failure(error) for row, error in errors.items()})

    def _failure(self, error: RecordError) -> Failure:
        return Failure.of(error, "TRANSFORMATION", self.stage.transform.full_name, f"{self.stage.name}: {error}")


def _joined(blocks: list[Block]) -> list[Block]:
    """Blocks of one shape put together again, so that stages under predicates do not leave ever more of them."""
    together: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        sources: tuple[object, ...] = ()
        if block.kind == "object":
            sources = tuple(_source(column) for column in block.columns.values())
        together.setdefault((block.shape, block.checked, sources), []).append(block)
    return [alike[0] if len(alike) == 1 else _merged(alike) for alike in together.values()]


def _source(column: Column) -> object:
    """Return what columns have in common that can be joined as bytes; None for values, which are joined as such."""
    if isinstance(column, SpanColumn) and isinstance(column.slot, int):
        return column.spans.source, column.spans.names, column.slot
    return column if isinstance(column, PatchedColumn) else None


def _merged(blocks: list[Block]) -> Block:
    first = blocks[0]
    rows = np.concatenate([block.rows for block in blocks])
    order = np.argsort(rows, kind="stable")
    indexes = order.tolist()

    spans: Spans | None = None

    def together(columns: list[Column]) -> Column:
        nonlocal spans
        if isinstance(columns[0], SpanColumn):
            parts = [column.spans for column in columns if isinstance(column, SpanColumn)]
            spans = spans or parts[0].joined(parts, order)
            return SpanColumn(spans, columns[0].slot)
        items = list(chain.from_iterable(columns))
        return [items[index] for index in indexes]

    if first.kind == "null":
        return Block(rows[order], first.schema, checked=first.checked)
    if first.kind == "plain":
        values = together([block.values for block in blocks])
        return Block(rows[order], first.schema, values=values, checked=first.checked)
    columns = {name: together([block.columns[name] for block in blocks]) for name in first.columns}
    return Block(rows[order], first.schema, columns=columns, checked=first.checked)
