"""Tables of Delta Lake and Iceberg in a folder, written and read by their own libraries."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

FLIGHTS = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("fare", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)
AT = datetime(2013, 1, 1, 5, 17, 0, 123_456, tzinfo=UTC)


def flights(*ids: int, schema: pa.Schema = FLIGHTS, **more: Any) -> pa.Table:
    rows = [
        {"id": n, "carrier": "AA" if n % 2 else "UA", "fare": Decimal(n) / 4, "at": AT, "day": date(2013, 1, 1), **more}
        for n in ids
    ]
    return pa.Table.from_pylist(rows, schema)


class Lake:
    """Tables of one format in a folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }

    def block(self, name: str, **more: Any) -> str:
        place = (
            {"path": f"{self.folder}/{name}"}
            if self.kind == "delta"
            else {"catalog": self.catalog, "table": f"lake.{name}"}
        )
        return json.dumps({"format": self.kind, **place, **more})

    def add(self, name: str, rows: pa.Table) -> None:
        if self.kind == "delta":
            deltalake.write_deltalake(f"{self.folder}/{name}", rows, mode="append", schema_mode="merge")
            return
        catalog = self.catalog_()
        catalog.create_namespace_if_not_exists("lake")
        catalog.create_table_if_not_exists(f"lake.{name}", schema=rows.schema).append(rows)

    def delete(self, name: str, condition: str) -> None:
        if self.kind == "delta":
            deltalake.DeltaTable(f"{self.folder}/{name}").delete(condition)
        else:
            self.catalog_().load_table(f"lake.{name}").delete(condition)

    def rows(self, name: str, order: str = "id") -> list[dict[str, Any]]:
        table = self.table(name)
        rows: list[dict[str, Any]] = (
            table.to_pyarrow_table().to_pylist() if self.kind == "delta" else table.scan().to_arrow().to_pylist()
        )
        return sorted(rows, key=lambda row: str(row[order]).zfill(20))

    def table(self, name: str) -> Any:
        return (
            deltalake.DeltaTable(f"{self.folder}/{name}")
            if self.kind == "delta"
            else self.catalog_().load_table(f"lake.{name}")
        )

    def commits(self, name: str) -> int:
        table = self.table(name)
        return table.version() if self.kind == "delta" else len(table.snapshots())

    def catalog_(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog(**self.catalog)
