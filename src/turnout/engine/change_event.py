"""Text of a Debezium change event: operation, row, and position in the database's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from turnout.base.untrusted import is_whole
from turnout.records.text import iso_of
from turnout.records.types import DynamicValue

_ACTIONS: Final = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "read by a snapshot",
    "t": "truncate",
    "m": "message",
}
_CONTAINERS: Final = ("db", "schema", "table", "collection")
_POSITIONS: Final = ("lsn", "file", "pos", "gtid", "scn", "change_lsn", "commit_lsn", "row", "txId")
"""Fields of the source that say where in the database's log a change is."""

_NO_ROW_BEFORE: Final = "the event has no row before the change: the table's replica identity or the log leaves it out"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """Parts of a change event.

    Attributes:
        action: ``insert``, ``update``, ``delete``, ``read by a snapshot``, ``truncate`` or ``message``.
        table: names of database, schema and table, as far as there are, with dots.
        origin: the connector, the position in the database's log, and the time there.
        before: the row before; None where there was none, or the event does not have it.
        after: the row after; None where there is none.
        remark: about a row that is missing; "" if none is.
    """

    action: str
    table: str
    origin: str
    before: DynamicValue
    after: DynamicValue
    remark: str = ""


def change_event(value: DynamicValue) -> ChangeEvent | None:
    """Return the parts of a value that is a change event; None for others.

    Args:
        value: as JSON has it.

    >>> event = change_event({"op": "d", "before": {"id": 7}, "after": None, "source": {"db": "shop", "table": "item"}})
    >>> event.action, event.table, event.before
    ('delete', 'shop.item', {'id': 7})
    >>> change_event({"op": "d", "source": "shop"}) is None
    True
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("source"), Mapping):
        return None
    op, source = value.get("op"), value["source"]
    action = _ACTIONS.get(op) if isinstance(op, str) else None
    if action is None or not {"before", "after", "message"} & value.keys():
        return None
    before, after = value.get("before"), value.get("after")
    remark = ""
    if op in ("u", "d") and before is None:
        remark = _NO_ROW_BEFORE
    table = ".".join(str(source[name]) for name in _CONTAINERS if source.get(name) is not None)
    return ChangeEvent(action, table, ", ".join(_origin(source, value.get("ts_ms"))), before, after, remark)


def _origin(source: Mapping[str, DynamicValue], read_at: DynamicValue) -> Iterator[str]:
    """Yield the phrases about a change's origin."""
    connector, server, version = (source.get(name) for name in ("connector", "name", "version"))
    yield " ".join(
        [
            f"connector {connector}" if connector is not None else "a connector without a name",
            *([] if server is None else [f"of {server}"]),
            *([] if version is None else [f"(Debezium {version})"]),
        ]
    )
    if source.get("snapshot") not in (None, False, "false"):
        yield "in a snapshot"
    positions = [f"{name} {source[name]}" for name in _POSITIONS if source.get(name) is not None]
    if positions:
        yield " ".join(positions)
    changed_at = source.get("ts_ms")
    if is_whole(changed_at, 0):
        yield f"changed at {iso_of(int(changed_at))}"
        if is_whole(read_at, 0):
            yield f"read {(int(read_at) - int(changed_at)) / 1000:g} s later"
