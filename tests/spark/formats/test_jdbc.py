"""PostgreSQL through Spark's own connector, as a sink by key and as a source: routes as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import NotAvailable, Postgres

from turnout.demo.kafka_broker import resolve_jars
from turnout.errors import TurnoutError

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.postgres

DRIVER = "org.postgresql:postgresql:42.7.8"
COLUMNS = {
    "id": "value.id BIGINT",
    "city": "value.city STRING",
    "total": "value.total DECIMAL(10,2)",
    "at": "value.at TIMESTAMP",
}
ORDERS = [
    {"id": 1, "city": "Oulu", "total": "10.50", "at": "2026-01-01T00:00:00.5Z"},
    {"id": 2, "city": "Kemi", "total": "7.25"},
    {"id": 1, "city": "Oulu", "total": "11.75", "at": "2026-01-02T00:00:00Z"},
    {"id": 3, "city": "Pori", "total": "1.005"},
    {"id": 4, "city": "Ra\0uma", "total": "1"},
    {"id": 5, "city": None, "total": "1"},
    {"id": 6, "city": "Hämeenlinna", "total": "1"},
    {"id": 7, "city": "Pori", "total": "123456789.5"},
    {"id": None, "city": "Pori", "total": "1"},
]
"""Five that the table refuses: one such row would end the run."""
RUN = """
import sys
from pathlib import Path
from turnout.routes import Route
from turnout.spark.running.job import run
from turnout.spark.session.build import route_session
routes = [Route.load(Path(name)) for name in sys.argv[1:]]
with route_session(routes[0], master="local[2]") as spark:
    for number, route in enumerate(routes):
        counts = run(route, spark, once=True, checkpoint=Path(sys.argv[1]).parent / f"checkpoint{number}").counts
        print(counts.read, counts.delivered, counts.dead_lettered, counts.discarded)
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    try:
        resolve_jars([DRIVER], without=("*",))
        with Postgres() as server:
            yield server
    except (NotAvailable, TurnoutError) as reason:
        pytest.skip(str(reason))


def block(database: Postgres, **more: Any) -> str:
    """A source or a sink of the table."""
    options = {"url": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres", "dbtable": "orders", "user": "turnout"}
    return json.dumps({"format": "spark", "provider": "jdbc", "options": options, "packages": [DRIVER], **more})


def rows(database: Postgres, question: str = "SELECT id, city, total::text FROM orders ORDER BY id") -> list[Any]:
    with psycopg.connect(database.url) as connection:
        return list(connection.execute(question).fetchall())


@pytest.mark.heavy
def test_rows_by_key_and_back(database: Postgres, tmp_path: Path) -> None:
    """A key has one row, the last; a batch that is done again changes nothing, and a bad record stops none."""
    with psycopg.connect(database.url) as connection:
        connection.execute(
            "CREATE TABLE orders"
            " (id bigint PRIMARY KEY, city varchar(10) NOT NULL, total numeric(10,2), at timestamptz)"
        )
        connection.execute("INSERT INTO orders VALUES (2, 'Turku', 1, NULL), (9, 'Vaasa', 9, NULL)")
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"topic": "orders", "value": json.dumps(order)}) for order in ORDERS]
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    letters = f"{{format: json, path: {tmp_path}/letters}}"
    into = (
        f"source: {{format: json, path: {tmp_path}/in}}\nvalue: {{format: json}}\n"
        f"sinks: {{db: {block(database, upsertBy='id', columns=COLUMNS)}, letters: {letters}}}\n"
        'deadLetter: {topic: "letters:dead"}\nerrors: {tolerance: all}\n'
    )
    record = {"topic": "{lower(city)}", "key": "id", "offset": "id", "timestamp": "at"}
    back = f"source: {block(database, record=record)}\nsink: {{format: json, path: {tmp_path}/out}}\n"
    files = []
    for name, text in (("into", into), ("again", into), ("back", back)):
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(f"name: {name}\n{text}")

    done = subprocess.run([sys.executable, "-c", RUN, *files], capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-3:] == ["9 3 6 0", "9 3 6 0", "3 3 0 0"]
    expected = [(1, "Oulu", "11.75"), (2, "Kemi", "7.25"), (9, "Vaasa", "9.00")]
    assert rows(database) == expected
    assert rows(database, "SELECT count(*) FROM pg_tables WHERE tablename LIKE '%turnout%'") == [(0,)]
    read = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    values = {record["topic"]: json.loads(record["value"]) for record in read}
    assert values["oulu"] == {"id": 1, "city": "Oulu", "total": 11.75, "at": "2026-01-02T00:00:00.000Z"}
    assert {topic: value["id"] for topic, value in values.items()} == {"oulu": 1, "kemi": 2, "vaasa": 9}
