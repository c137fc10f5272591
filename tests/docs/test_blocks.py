"""Every block of every page: which test runs it, or why none does."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.documentation import DOCS, blocks
from turnout.routes import Route
from turnout.routes.json_schema import model_schema
from turnout.server.config import ServerConfig

ROOT = Path(__file__).parents[2]

RUN_BY = {
    **{path.relative_to(DOCS).as_posix(): "tests/docs/test_cookbook.py" for path in (DOCS / "cookbook").glob("*.md")},
    "analysis.md": "tests/subscriptions/test_documentation.py",
    "architecture.md": "tests/docs/test_generated.py",
    "clients.md": "tests/docs/test_clients.py",
    "complete-route.md": "tests/docs/test_complete_route.py",
    "concepts.md": "tests/docs/test_pages.py",
    "conditions.md": "tests/conditions/test_documentation.py",
    "diff.md": "tests/cli/history/test_diff.py",
    "explain.md": "tests/cli/test_documentation.py",
    "feeds.md": "tests/cli/history/test_messages.py",
    "webhooks.md": "tests/delivery/test_dispatcher.py",
    "webhook-requests.md": "tests/delivery/test_dispatcher.py",
    "http-source.md": "tests/server/test_inputs.py",
    "frames.md": "tests/spark/test_notebook.py",
    "from-connect.md": "tests/cli/test_documentation.py",
    "from-nats-mappings.md": "tests/cli/test_documentation.py",
    "from-nats-spark-connector.md": "tests/spark/formats/nats/test_push_down.py",
    "from-redpanda-connect.md": "tests/cli/test_documentation.py",
    "from-vector.md": "tests/cli/test_documentation.py",
    "history.md": "tests/cli/test_history_page.py",
    "index.md": "tests/docs/test_pages.py",
    "jetstream.md": "tests/nats/jetstream/test_documentation.py",
    "receiving.md": "tests/integration/test_receiving.py",
    "lineage.md": "tests/cli/test_documentation.py",
    "performance.md": "tests/docs/test_generated.py",
    "pipelines.md": "tests/spark/test_pipelines.py",
    "performance-matching.md": "tests/docs/test_generated.py",
    "performance-nats-kafka.md": "tests/docs/test_generated.py",
    "performance-subscriptions.md": "tests/docs/test_generated.py",
    "reference/transforms.md": "tests/transforms/test_reference.py",
    "reference/debezium-transforms.md": "tests/transforms/test_reference.py",
    "reference/more-transforms.md": "tests/transforms/test_reference.py",
    "reference/predicates.md": "tests/transforms/test_reference.py",
    "stores.md": "tests/subscriptions/test_documentation.py",
    "subscriptions-service.md": "tests/subscriptions/test_documentation.py",
    "start.md": "tests/docs/test_cookbook.py",
    "subjects.md": "tests/subjects/test_documentation.py",
    "subscriptions.md": "tests/subscriptions/test_documentation.py",
    "testing.md": "tests/cli/test_documentation.py",
    "tutorial.md": "tests/integration/test_tutorial.py",
}
"""A page's blocks are run by the test; those that are not are below, too."""

NOT_RUN = {
    ("cluster.md", "dockerfile"): "needs a daemon that builds images",
    (
        "cluster.md",
        "python",
    ): "needs a cluster: tests/integration/test_c*_*.py run such programs",
    ("cluster.md", "sh"): "needs a cluster: tests/integration starts one with the same classes",
    ("console.md", "console"): "does not end; tests/server starts it",
    ("deploy.md", "console"): "needs an engine or a system's own services: tests/deploy reads and runs what it can",
    ("encodings-tests.md", "console"): "needs a registry server; the tests that it names run with stand-ins, too",
    ("conversion.md", "text"): "the reason of a dead letter; tests/codecs/test_conversion.py has such",
    ("from-eventbridge.md", "console"): "the reader's own rules; tests/cli/test_import.py imports some",
    ("from-sigma.md", "console"): "the reader's own rules; tests/cli/test_import.py imports some, with these options",
    ("ha.md", "console"): "does not end; tests/integration/test_two_servers.py starts such servers",
    ("ha.md", "yaml"): "names hosts and mounts; tests/server/test_standby.py and tests/deploy/test_chart.py have such",
    (
        "traces.md",
        "console",
    ): "needs a collector, or Docker; tests/traces has a collector, tests/deploy reads the files",
    ("nats.md", "python"): "does not end; tests/spark/formats and tests/integration/copy_stream.py run it with an end",
    ("receiving.md", "go"): "needs modules of its own; the client is NATS's",
    ("receiving.md", "java"): "a part of a program; the client is Kafka's",
    ("receiving.md", "js"): "needs packages of its own; the client is NATS's",
    ("receiving.md", "sh"): "programs of NATS and Kafka",
    ("reliability-tests.md", "sh"): "takes hours: these are the tests themselves",
    ("routes.md", "console"): "the state of somebody's server; tests/cli/test_check.py has each of its lines",
    (
        "scheduled.md",
        "console",
    ): "somebody's server; tests/delivery/test_scheduled.py runs these commands",
    ("push-down.md", "console"): "the state of a server of the reader; tests/cli/test_check.py has each of its lines",
    ("server.md", "console"): "does not end; tests/server starts it",
    ("server-api.md", "console"): "asks a server of the reader; tests/cli/test_ctl.py does the same to one of its own",
}


def kinds() -> set[tuple[str, str]]:
    """Pages with the languages of their blocks."""
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    return {(page, block.language) for page in pages for block in blocks(page)}


HERE = {
    ("cluster.md", "yaml"),
    ("deploy.md", "yaml"),
    ("conversion.md", "yaml"),
    ("debezium.md", "yaml"),
    ("json-schema-protobuf.md", "proto"),
    ("json-schema-protobuf.md", "yaml"),
    ("monitoring.md", "yaml"),
    ("connectors.md", "yaml"),
    ("encodings.md", "yaml"),
    ("from-eventbridge.md", "yaml"),
    ("from-sigma.md", "yaml"),
    ("kafka.md", "yaml"),
    ("routes.md", "yaml"),
    ("scheduled.md", "yaml"),
    ("server-api.md", "sh"),
    ("server.md", "yaml"),
    ("traces.md", "yaml"),
    ("transforms.md", "yaml"),
    ("transforms.md", "python"),
}
"""Run below, or by `tests/docs/test_pages.py`, `tests/server/test_serving.py`, and by `test_reference.py` and
`test_registry.py` in `tests/transforms/`."""


def test_every_block_is_run_or_there_is_a_reason() -> None:
    """Reasons for blocks that no longer exist are reported too."""
    unknown = {kind for kind in kinds() if kind[0] not in RUN_BY and kind not in NOT_RUN and kind not in HERE}

    assert unknown == set()
    assert {*NOT_RUN, *HERE} - kinds() == set()
    assert set(RUN_BY) - {page for page, _ in kinds()} == set()
    assert [test for test in RUN_BY.values() if not (ROOT / test).is_file()] == []


@pytest.mark.parametrize(("page", "language"), sorted(NOT_RUN))
def test_what_is_not_run(page: str, language: str) -> None:
    """Shown as skipped, with the reason."""
    pytest.skip(f"{page}, {language or 'plain'}: {NOT_RUN[page, language]}")


def test_the_settings_of_a_server() -> None:
    """The page's turnout.yaml is one by its schema."""
    schema = Draft202012Validator(model_schema(ServerConfig))
    block = next(block for block in blocks("server.md", "yaml") if block.text.startswith("listen:"))

    assert list(schema.iter_errors(yaml.safe_load(block.text))) == []


def test_the_checkpoint_of_the_page_on_clusters() -> None:
    """It is read as a part of a route; the library has the version of PySpark's own of Hadoop."""
    (block,) = blocks("cluster.md", "yaml")
    route = 'name: far\nsource: {format: nats, servers: "nats://127.0.0.1", stream: S}\n'
    loaded = Route.parse(route + 'sink: {format: nats, servers: "nats://127.0.0.1", stream: null}\n' + block.text, {})
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")

    assert loaded.checkpoint == "s3a://bucket/turnout/orders"
    assert loaded.spark["spark.jars.packages"].rpartition(":")[2] in client.name


def test_the_values_of_the_page_on_deployments() -> None:
    """They meet the schema of the chart."""
    chart = ROOT / "deploy" / "helm" / "turnout" / "values.schema.json"
    (block,) = blocks("deploy.md", "yaml")
    schema = Draft202012Validator(yaml.safe_load(chart.read_text(encoding="utf-8")))

    assert list(schema.iter_errors(yaml.safe_load(block.text))) == []


def test_the_chain_of_the_page_on_transforms() -> None:
    """It is read as one of a route."""
    block = next(block for block in blocks("transforms.md", "yaml") if block.text.startswith("transforms:"))
    route = 'name: chain\nsource: {format: nats, servers: "nats://127.0.0.1", stream: S}\nvalue: {format: json}\n'
    route += 'sink: {format: nats, servers: "nats://127.0.0.1", stream: null}\n'

    assert len(Route.parse(route + block.text, {}).chain.stages) == 2


def test_the_routes_of_the_page_on_kafka(tmp_path: Path) -> None:
    """They are read as routes, the last one with a file of authorities."""
    authorities = tmp_path / "ca.pem"
    authorities.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", encoding="utf-8")
    texts = [block.text.replace("/etc/kafka/ca.pem", str(authorities)) for block in blocks("kafka.md", "yaml")]

    assert [Route.parse(text, {}).name for text in texts] == ["orders", "fast", "secured"]
