"""Change events of Debezium without schemas, and what a stage makes of them."""

from __future__ import annotations

from typing import Any

from turnout.records import Failure, Record
from turnout.transforms import Chain

ANNE, BOB = {"id": 1, "region": "eu"}, {"id": 2, "region": "us"}
SOURCE = {"table": "customers", "lsn": 7}


def change(op: str, before: Any, after: Any) -> dict[str, Any]:
    """Return the value of one event."""
    return {"before": before, "after": after, "source": SOURCE, "op": op}


def outcomes(stage: dict[str, Any], *values: Any) -> list[Record | Failure | None]:
    """Return the outcomes of records with these values."""
    return Chain.from_route([stage]).apply([Record("t", value, key={"id": 1}) for value in values])
