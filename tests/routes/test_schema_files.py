"""Schema files that a route's ``key`` and ``value`` name."""

from __future__ import annotations

from pathlib import Path

from turnout.routes import Route

TEXT = """
name: shop
value: {format: protobuf, schema: schemas/shop.proto}
source: {format: json, path: in}
sink: {format: json, path: out}
"""


def test_a_schema_file_is_looked_for_beside_the_route(tmp_path: Path) -> None:
    """The lookup is independent of the working folder, and the workers get the absolute path."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "shop.proto").write_text('syntax = "proto3"; message Order {int32 n = 1;}')
    (tmp_path / "shop.yaml").write_text(TEXT)

    route = Route.load(tmp_path / "shop.yaml")

    assert route.value.settings == {"schema": str(tmp_path / "schemas" / "shop.proto")}
