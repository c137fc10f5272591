"""The programs of the page on clients: generated, compiled, and run against a server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import grpc_tools
import pytest

from tests.documentation import Block, blocks
from tests.integration.foreign_clients import GO_PLUGINS, building, cached, program, run
from tests.server.rest.test_generators import JAVA, available, npm_tools, openapi_generator
from tests.server.test_serving import serving
from tests.transforms.kafka_host import jars
from turnout.server.serving import RouteServer

pytestmark = pytest.mark.heavy

PROTOC: Final = "4.35.1"
GRPC_JAVA: Final = (
    *(("io.grpc", name, "1.85.0") for name in ("grpc-netty-shaded", "grpc-protobuf", "grpc-stub")),
    ("com.google.protobuf", "protobuf-java", PROTOC),
)


def go_plugins() -> Path:
    go = program("go", "install Go 1.24 or newer")
    folder = cached("go-plugins", [], GO_PLUGINS)
    with building(folder) as made:
        if made is not None:
            for plugin in GO_PLUGINS:
                run([go, "install", plugin], made, {"GOBIN": str(made)})
    return folder


def protoc() -> Path:
    maven = program("mvn", "install Maven")
    folder = cached("protoc", [], [PROTOC])
    with building(folder) as made:
        if made is not None:
            artifact = f"com.google.protobuf:protoc:{PROTOC}:exe:linux-x86_64"
            run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={made}"], made)
            (found,) = made.glob("protoc-*.exe")
            found.rename(made / "protoc")
            (made / "protoc").chmod(0o755)
    return folder / "protoc"


class Workshop:
    """A folder with the commands that the page takes for granted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = folder / "bin"
        self.commands.mkdir()
        self.environment = {**os.environ, "PATH": f"{self.commands}:{os.environ['PATH']}"}
        self.provide("python", sys.executable)

    def provide(self, name: str, command: str) -> None:
        """Let a command be found."""
        path = self.commands / name
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)

    def done(self, script: str) -> list[str]:
        """The lines that a script prints."""
        finished = subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert finished.returncode == 0, (finished.stdout + finished.stderr)[-4_000:]
        return finished.stdout.splitlines()


def rest_generator(shop: Workshop) -> None:
    shop.provide("openapi-generator-cli", f"java -Xmx700m -jar {available(openapi_generator)}")


def rest_python(shop: Workshop) -> None:
    pytest.importorskip("dateutil", reason="the generated client needs python-dateutil")
    rest_generator(shop)


def go_flags(shop: Workshop) -> None:
    available(lambda: Path(program("go", "install Go 1.24 or newer")))
    shop.environment |= {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}


def rest_go(shop: Workshop) -> None:
    go_flags(shop)
    rest_generator(shop)


def node(shop: Workshop) -> None:
    (shop.folder / "node_modules").symlink_to(available(npm_tools) / "node_modules")
    (shop.folder / "package.json").write_text('{"type": "module"}')


def java(shop: Workshop, name: str, artifacts: tuple[tuple[str, str, str], ...]) -> None:
    available(lambda: Path(program("javac", "install a JDK 11 or newer")))
    shop.environment["LIBRARIES"] = f"{jars(name, artifacts)[0].parent}/*"


def rest_java(shop: Workshop) -> None:
    java(shop, "openapi-java-client", JAVA)
    rest_generator(shop)


def grpc_python(_: Workshop) -> None:
    """Nothing more is needed."""


def grpc_go(shop: Workshop) -> None:
    go_flags(shop)
    shop.environment["PATH"] = f"{available(go_plugins)}:{shop.environment['PATH']}"
    shop.provide("protoc", f"{sys.executable} -m grpc_tools.protoc")


def grpc_java(shop: Workshop) -> None:
    java(shop, "grpc-java-client", GRPC_JAVA)
    shop.provide("protoc", f"{available(protoc)} -I {Path(grpc_tools.__file__).parent / '_proto'}")


CLIENTS: Final[dict[str, tuple[Callable[[Workshop], None], str]]] = {
    "rest.py": (rest_python, "404 no subscription"),
    "main.go": (rest_go, "404 no subscription"),
    "rest.ts": (node, "404 no subscription"),
    "Rest.java": (rest_java, "404 {"),
    "client.py": (grpc_python, "NOT_FOUND SUBSCRIPTION_NOT_FOUND"),
    "client.go": (grpc_go, "NotFound SUBSCRIPTION_NOT_FOUND"),
    "client.mjs": (node, "NOT_FOUND no subscription"),
    "Client.java": (grpc_java, "NOT_FOUND no subscription"),
}
"""What a program needs, by its file, and the beginning of its last line."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouteServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "routes").mkdir()
    store = f"sqlite:///{folder}/subscriptions.db"
    with serving(folder / "routes", store=store, grpc={"listen": "127.0.0.1:0"}) as server:
        yield server


def programs() -> dict[str, tuple[Block, str]]:
    """The page's programs by their files, each with the commands behind it."""
    _, *rest = blocks("clients.md")
    return {str(code.file_name): (code, shell.text) for code, shell in zip(rest[::2], rest[1::2], strict=True)}


def test_every_program_is_run() -> None:
    assert programs().keys() == CLIENTS.keys()


@pytest.mark.parametrize("file", CLIENTS)
def test_a_client(file: str, server: RouteServer, tmp_path: Path) -> None:
    """It finds its subscription by a message, gets the reason of an error, and leaves nothing behind."""
    prepare, last = CLIENTS[file]
    shop = Workshop(tmp_path)
    prepare(shop)
    block, commands = programs()[file]
    (tmp_path / file).write_text(block.text)
    settings = blocks("clients.md")[0].text
    for shown, own in (("http://127.0.0.1:8090", server.url), ("127.0.0.1:8080", f"127.0.0.1:{server.grpc_port}")):
        assert shown in settings
        settings = settings.replace(shown, own)

    *_, found, refused = shop.done(f"{settings}{commands}")

    assert found == "deliver.oulu"
    assert refused.startswith(last)
    assert server.parts.subscriptions is not None
    assert list(server.parts.subscriptions.store.snapshot()) == []
