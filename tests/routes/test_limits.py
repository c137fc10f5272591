"""Limits of what a route may lose, as its file says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import RouteError
from turnout.routes import Route
from turnout.routes.limits import CallerLimits

ROUTE = """name: a
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
health: {discarded: %s}
"""


@pytest.mark.parametrize(("text", "limit"), [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("100 %", 1.0), ("off", False)])
def test_a_share(text, limit) -> None:
    """In percent or as a number; off where nothing is too much."""
    assert Route.parse(ROUTE % text, {}).health.discarded == limit


@pytest.mark.parametrize("text", ["5", "-1%", "101%", "many", "[1]", "true", ".nan"])
def test_no_share(text) -> None:
    """The mistake names the place, what was found and what is expected."""
    with pytest.raises(RouteError, match=r"health\.discarded.*expected a share as 5% or 0\.05, or off") as wrong:
        Route.parse(ROUTE % text, {})
    assert [mistake.line for mistake in wrong.value.mistakes] == [4]


def test_callers_name_no_files_elsewhere(tmp_path: Path) -> None:
    """A file outside of the folder of routes is refused, with the place of its name in the document."""
    limits = CallerLimits(writer=True, folder=tmp_path)
    document = {"value": {"format": "avro", "registry": {"url": "https://a", "tls": {"ca": "/etc/passwd"}}}}
    assert [path for path, _ in limits.mistakes(document, tmp_path)] == [("value", "registry", "tls", "ca")]


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ("tables: {t: {format: csv, path: /etc/passwd, key: root}}", "tables.t.path"),
        ("tables: {t: {format: csv, path: ../../etc/passwd, key: root}}", "tables.t.path"),
        ("tables: {t: {format: delta, path: /lake/t, key: id}}", "tables.t.path"),
        ("tables: {t: {format: nats, servers: 'nats://a', bucket: B, credentials: /etc/n}}", "tables.t.credentials"),
        (
            "tables: {t: {format: iceberg, catalog: {uri: 'sqlite:////lake/catalog.db'}, table: a.b, key: id}}",
            "tables.t.catalog.uri",
        ),
        (
            "subscriptions: {store: 'memory://', feeds: {table: {format: delta, path: /lake/m}}}",
            "subscriptions.feeds.table.path",
        ),
    ],
)  # fmt: skip
def test_files_of_tables(tmp_path: Path, more: str, path: str) -> None:
    """A caller may name none outside of the folder of routes, and no such table is read."""
    text = f"""
name: r
source: {{format: nats, servers: "nats://a", stream: S}}
value: {{format: json}}
sink: {{format: nats, servers: "nats://a"}}
{more}
"""
    folder = tmp_path / "routes"
    folder.mkdir()
    with pytest.raises(RouteError) as refused:
        Route.parse(text, {}, file=folder / "r.yaml", limits=CallerLimits(writer=True, folder=folder))

    assert [mistake.path for mistake in refused.value.mistakes] == [path]
