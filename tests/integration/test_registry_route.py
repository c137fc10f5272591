"""A route with a schema registry: its requests, counted by the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.codecs.schema_registry.stand_in import running_registry
from tests.integration.routes import Streams

pytestmark = [pytest.mark.spark, pytest.mark.heavy]

COUNT = 6_000
_ROUTE = """
name: registry
source: {{format: nats, servers: "{streams.url}", stream: {streams.source}, maxRecordsPerTrigger: 500}}
value: {{format: avro, registry: "{registry}"}}
transforms:
  - {{name: masked, type: MaskField$Value, fields: n}}
mappings:
  "in-{streams.name}.*": "out-{streams.name}.{{{{wildcard(1)}}}}"
sink: {{format: nats, servers: "{streams.url}"}}
trigger: {{availableNow: true}}
checkpoint: "{work}/checkpoint"
"""


def test_each_process_requests_a_schema_once(streams: Streams, tmp_path: Path) -> None:
    """Three schemas in twelve micro-batches: at most three requests from the driver and from each worker."""
    with running_registry() as registry:
        ids = [registry.add("in-value", _schema(name)) for name in ("A", "B", "C")]
        values = [b"\0" + ids[n % 3].to_bytes(4, "big") + b"\2" for n in range(COUNT)]
        streams.publish([(str(n), value, ()) for n, value in enumerate(values)])
        path = tmp_path / "route.yaml"
        path.write_text(_ROUTE.format(streams=streams, registry=registry.url, work=tmp_path), encoding="utf-8")

        done = subprocess.run(
            [sys.executable, "-m", "turnout", "run", str(path), "--json"],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout)["counts"]["delivered"] == COUNT
        assert set(registry.requests) == {f"GET /schemas/ids/{number}" for number in ids}
        assert max(registry.by_connection.values()) <= 3
        # One connection for each process: the driver, and the workers of two cores.
        assert 1 <= len(registry.by_connection) <= 6


def _schema(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "n", "type": "long"}]})
