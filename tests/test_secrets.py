"""Secret values, and proof that no output shows them."""

from __future__ import annotations

import dataclasses
import pickle
import socket
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest
from pydantic import BaseModel

from turnout.base.options import Option, options_of
from turnout.cli.app import main
from turnout.embedded import NatsServer
from turnout.routes.document import secret_names
from turnout.routes.endpoints import NatsSource, Part, Source, secrets_of
from turnout.routes.webhooks import WebhooksPart
from turnout.secrets import Secrecy, Secret, is_secret, masked_url
from turnout.server.config import OidcPart


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://ann:pw@host:4222", "nats://***@host:4222"),
        ("grpc://token@host", "grpc://***@host"),
        ("nats://ann:p@ss/w:rd@host", "nats://***@host"),
        ("nats://a:1@x,tls://b:2@y z mongodb+srv://c:3@w/db", "nats://***@x,tls://***@y z mongodb+srv://***@w/db"),
        ("sqlite:///home/a@b/x.db", "sqlite:///home/a@b/x.db"),
        ("mongodb://h/d?w=1&authToken=abc", "mongodb://h/d?w=1&authToken=***"),
        ("ann@example.org asked", "ann@example.org asked"),
        ("mail ann@example.org:25, at 12:30", "mail ann@example.org:25, at 12:30"),
        ("found 'u:PW@h:x', expected one", "found '***@h:x', expected one"),
        ("ann:p@ss/w:rd@host", "***@host"),
        ("u:PW@a:1,nats://v:PW@b", "***@a:1,nats://***@b"),
        ("nats://a:1 u:PW@b", "nats://a:1 ***@b"),
        ('{"at":"12:30","mail":"ann@example.org"}', '{"at":"12:30","mail":"ann@example.org"}'),
        ("/x?a?token=abc&b=c", "/x?a?token=***&b=c"),
    ],
)
def test_masked_url(text: str, expected: str) -> None:
    """User info goes from every URL, however it is written; the rest of the text stays."""
    assert expected == masked_url(text)


@pytest.mark.parametrize(
    "name",
    ["password", "pass", "kafka.sasl.jaas.config", "nkeySeed", "credentials", "clientSecret", "ssl.private-key", "jwt"],
)
def test_secret_names(name: str) -> None:
    """An option is secret by what its name holds, in any spelling."""
    assert is_secret(name)
    assert is_secret(name.upper())


@pytest.mark.parametrize("name", ["servers", "user", "key", "stream", "apiPrefix", "timeout", "passThrough"])
def test_plain_names(name: str) -> None:
    """Other options are shown."""
    assert not is_secret(name)


def _models(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in kind.__subclasses__():
        yield from (model, *_models(model))


def test_fields_named_like_secrets_are_declared() -> None:
    """Each field of the blocks of routes and of the server's file with such a name says what it is."""
    fields = [(model, name, info.metadata) for model in _models(Part) for name, info in model.model_fields.items()]
    own = [(model, name, marks) for model, name, marks in fields if model.__module__.startswith("turnout.")]
    undeclared = [
        (model.__name__, name)
        for model, name, marks in own
        if is_secret(name) and not {Secrecy.SECRET, Secrecy.PUBLIC}.intersection(marks)
    ]

    assert (NatsSource, "password") in [(model, name) for model, name, _ in own]
    assert (OidcPart, "client_secret") in [(model, name) for model, name, _ in own]
    assert undeclared == []


NO_SECRETS = {
    "basic.auth.credentials.source": "URL or USER_INFO",
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "tokenUrl": "an address",
    "API_JWT": "the address of an issuer",
    "jwt": "the same",
}
"""Options that are named like secrets, with what they hold."""


def test_options_named_like_secrets_are_declared() -> None:
    """The same for options of maps of texts, wherever they are declared."""
    found: set[tuple[str, bool]] = set()
    for package in ("codecs", "kafka", "nats", "routes", "rpc", "runtime", "subscriptions"):
        root = import_module(f"turnout.{package}")
        for module in walk_packages(root.__path__, f"{root.__name__}."):
            if ".index" not in module.name and "_pb2" not in module.name:
                found.update(_options(import_module(module.name)))

    assert {("auth.password", True), ("bearer.auth.token", True), ("credentials", True)} <= found
    assert {name for name, secret in found if is_secret(name) and not secret} == set(NO_SECRETS)


def _options(module: ModuleType) -> Iterator[tuple[str, bool]]:
    for value in vars(module).values():
        if isinstance(value, type) and dataclasses.is_dataclass(value):
            yield from ((option.name, option.secret) for option in options_of(value).values())
        for item in value if isinstance(value, tuple | list) else value.values() if isinstance(value, dict) else ():
            if isinstance(item, Option):
                yield item.name, item.secret


def test_blocks_are_printed_without_secrets() -> None:
    """A block that is printed, in a log or an error, has a mask in place of each secret."""
    block = WebhooksPart.model_validate(
        {
            "proxy": "http://ann:s3cr3t-proxy@proxy:1",
            "secrets": [f"whsec_{'s3cr3t': <32}".replace(" ", "A")],
            "endpoints": {"a": {"url": "https://a.example", "credentials": {"headers": {"X-Key": "s3cr3t-header"}}}},
        }
    )

    servers = ["nats://ann:s3cr3t-url@a:1", "tls://s3cr3t-token@b"]
    source = NatsSource.model_validate({"format": "nats", "servers": servers, "stream": "S", "token": "s3cr3t-t"})

    assert "s3cr3t" not in repr(block) + repr(source)
    assert "servers=['nats://***@a:1', 'tls://***@b']" in repr(source)
    assert "http://***@proxy:1" in repr(block)
    assert "https://a.example" in repr(block)


class Foreign(Source):
    """Source of another package."""

    format: str = "foreign"
    session_token: str


def test_fields_of_other_packages_are_masked_by_their_names() -> None:
    """Nobody declares them."""
    assert "s3cr3t" not in repr(Foreign.model_validate({"sessionToken": "s3cr3t-session"}))
    assert {"session_token", "sessionToken"} <= secrets_of(Foreign)


def test_mistakes_about_secrets_do_not_show_them() -> None:
    """The declared names of every block inside a route are known."""
    assert {"nkeySeed", "credentials", "secrets", "secret", "tlsKey"} <= secret_names()
    assert "proxy" not in secret_names()


def test_a_secret_is_shown_by_nothing_but_reveal() -> None:
    """repr, str, format and asdict keep the text; reveal gives it."""

    @dataclasses.dataclass
    class Holder:
        secret: Secret

    secret = Secret("s3cr3t-1")
    shown = f"{secret} {secret!r} {Holder(secret)} {dataclasses.asdict(Holder(secret))}"

    assert "s3cr3t" not in shown
    assert secret.reveal() == "s3cr3t-1"


def test_a_secret_is_a_value() -> None:
    """It can be compared, hashed, pickled, and tested for emptiness."""
    assert Secret("a") == Secret("a") != Secret("b")
    assert {Secret("a")} == {Secret("a")}
    assert pickle.loads(pickle.dumps(Secret("a"))).reveal() == "a"
    assert not Secret("")


# -- the command line: everything printed, every file written


GUARDED = 'authorization { users: [ {user: ann, password: "s3cr3t-right"} ] }'


@pytest.fixture(scope="module")
def guarded() -> Iterator[NatsServer]:
    """A server that lets one user in."""
    with NatsServer(config=GUARDED) as server:
        yield server


@dataclasses.dataclass(frozen=True)
class Printed:
    """Exit code and output of a command."""

    code: int
    text: str


@pytest.fixture
def turnout_command(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Printed]:
    """Runs the command line in an empty folder; whatever it does, no marked secret may be seen afterwards."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environment: str) -> Printed:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["turnout", *arguments])
        inputs = {path for path in tmp_path.rglob("*") if path.is_file()}
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        code = 0 if end.value.code is None else int(end.value.code)
        out, err = capfd.readouterr()
        written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path not in inputs}

        assert "s3cr3t" not in out + err + caplog.text
        assert [path for path, content in written.items() if b"s3cr3t" in content] == []
        return Printed(code, out + err)

    return run


def dead_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def addresses(port: int) -> list[str]:
    """Addresses with a marked password, of a server that is not there or that cannot be."""
    return [
        f"nats://ann:s3cr3t-url@127.0.0.1:{port}",
        f"nats://s3cr3t-token@127.0.0.1:{port}",
        f"ann:s3cr3t-plain@127.0.0.1:{port}",
        f"nats://ann:s3cr3t/slash@127.0.0.1:{port}",
        f"nats://ann:s3cr3t#hash@127.0.0.1:{port}",
        f"nats://ann:s3cr3t,comma@127.0.0.1:{port}",
        f"nats://ann:s3cr3t blank@127.0.0.1:{port}",
        f"nats://ann:s3cr3t%40@127.0.0.1:{port},nats://bob:s3cr3t-2@127.0.0.1:{port}",
        "http://ann:s3cr3t-scheme@127.0.0.1",
        "nats://ann:s3cr3t-port@127.0.0.1:port",
        "nats://ann:s3cr3t-brackets@[127.0.0.1",
        "ann:s3cr3t-no-host@",
    ]


ADDRESSES = addresses(dead_port())


@pytest.mark.parametrize("address", ADDRESSES, ids=[f"address{place}" for place in range(len(ADDRESSES))])
@pytest.mark.parametrize("command", [("tail", "a"), ("kv", "get", "bucket", "key")])
def test_addresses_of_servers(turnout_command: Callable[..., Printed], command: tuple[str, ...], address: str) -> None:
    """Neither a server that is away nor an address that is none shows the login."""
    if command[0] == "tail":
        printed = turnout_command(*command, "--server", address, "--timeout", "0.3")
    else:
        printed = turnout_command("kv", "--timeout", "0.3", *command[1:], NATS_URL=address)

    assert printed.code in (1, 2)
    assert printed.text


@pytest.mark.parametrize(
    "environment",
    [
        {"TURNOUT_NATS_USER": "ann", "TURNOUT_NATS_PASSWORD": "s3cr3t-wrong"},
        {"TURNOUT_NATS_TOKEN": "s3cr3t-token"},
        {"TURNOUT_NATS_NKEY_SEED": "s3cr3t-seed"},
        {"TURNOUT_NATS_TOKEN": "s3cr3t-token", "TURNOUT_NATS_NKEY_SEED": "s3cr3t-seed"},
    ],
)
def test_logins_that_are_refused(
    guarded: NatsServer, turnout_command: Callable[..., Printed], environment: dict[str, str]
) -> None:
    """The server's word is shown, and not what was sent to it."""
    printed = turnout_command("tail", "a", "--server", guarded.url, "--timeout", "1", **environment)

    assert printed.code in (1, 2)


def test_a_login_from_the_environment(guarded: NatsServer, turnout_command: Callable[..., Printed]) -> None:
    """User and password from the environment let a command in; from a URL on the command line too, with a warning."""
    environment = {"TURNOUT_NATS_USER": "ann", "TURNOUT_NATS_PASSWORD": "s3cr3t-right"}
    assert turnout_command("kv", "--server", guarded.url, "create-bucket", "B", **environment).code == 0
    assert "process" not in turnout_command("kv", "--server", guarded.url, "buckets").text


def test_a_login_on_the_command_line(guarded: NatsServer, turnout_command: Callable[..., Printed]) -> None:
    """It works, and a warning says who can read it; from NATS_URL there is none."""
    url = guarded.url.replace("//", "//ann:s3cr3t-right@")
    warned = turnout_command("kv", "--server", url, "buckets")
    quiet = turnout_command("kv", "buckets", NATS_URL=url)

    assert (warned.code, quiet.code) == (0, 0)
    assert "all users of this machine can read the login in --server" in warned.text
    assert "everybody" not in quiet.text


STORES = [
    "ftp://ann:s3cr3t-scheme@host/x",
    "grpc://ann:s3cr3t-grpc@127.0.0.1:1",
    "grpc://ann:s3cr3t-grpc@127.0.0.1:1?token=s3cr3t-query",
    "sqlite://ann:s3cr3t-lite@host/x.db",
    "mongodb://ann:s3cr3t-mongo@127.0.0.1:port/db",
    "mongodb://ann:s3cr3t/slash@127.0.0.1:1/db",
    "mongodb://ann:s3cr3t-mongo@127.0.0.1:1/db?serverSelectionTimeoutMS=200&connectTimeoutMS=200",
]


@pytest.mark.parametrize("store", STORES, ids=[f"store{place}" for place in range(len(STORES))])
@pytest.mark.parametrize("command", [("search", "--json"), ("match", "a=b"), ("export",)])
def test_stores(turnout_command: Callable[..., Printed], command: tuple[str, ...], store: str) -> None:
    """A store that is away, or whose address cannot be, is named without its login."""
    printed = turnout_command("subscriptions", *command, "--store", store)

    assert printed.code in (1, 2)
    assert printed.text


ROUTE = """
name: marked
source: {{format: nats, servers: "{servers}", stream: S, {login}}}
subscriptions: {{store: "mongodb://ann:s3cr3t-mongo@127.0.0.1:1/db?serverSelectionTimeoutMS=200"}}
sinks:
  a: {{format: nats, servers: "{servers}", token: s3cr3t-token}}
  b: {{format: kafka, servers: "127.0.0.1:1", security: {{security.protocol: SASL_PLAINTEXT,
    sasl.mechanism: PLAIN, sasl.jaas.config: "PlainLoginModule required username=a password=s3cr3t-jaas;"}}}}
{more}
"""
LOGINS = ["user: ann, password: s3cr3t-pw", "token: s3cr3t-token", "nkeySeed: s3cr3t-seed"]
WRONG = ["timeout: s0on", "pasword: s3cr3t-typo", "password: [s3cr3t-list]", "domain: {a: b}, nkeySeed: [s3cr3t-list]"]


@pytest.mark.parametrize("login", [*LOGINS, *WRONG], ids=lambda login: login.partition(":")[0])
def test_routes(turnout_command: Callable[..., Printed], tmp_path: Path, login: str) -> None:
    """check and explain tell what is wrong with a route, and what a record becomes, without its secrets."""
    file = tmp_path / "route.yaml"
    file.write_text(ROUTE.format(servers="nats://bob:s3cr3t-url@127.0.0.1:1", login=login, more=""))
    record = tmp_path / "record.json"
    record.write_text('{"topic": "a", "value": "b"}')
    codes = {
        turnout_command("check", str(file)).code,
        turnout_command("check", str(file), "--json").code,
    }
    explained = turnout_command("explain", str(file), "--file", str(record)).code

    assert codes == {2 if login in WRONG else 0}
    # The store that explain wants to read is away.
    assert explained == (2 if login in WRONG else 1)


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login.partition(":")[0])
@pytest.mark.parametrize("alive", [True, False])
def test_runs_that_fail_to_connect(
    guarded: NatsServer, turnout_command: Callable[..., Printed], tmp_path: Path, login: str, alive: bool
) -> None:
    """A run that is refused, or finds no server, says so without its secrets."""
    file = tmp_path / "route.yaml"
    servers = guarded.url if alive else f"nats://bob:s3cr3t-url@127.0.0.1:{dead_port()}"
    file.write_text(ROUTE.format(servers=servers, login=login, more="trigger: {availableNow: true}"))
    printed = turnout_command("run", str(file), "--once")

    assert printed.code in (1, 2)
    assert "127.0.0.1" in printed.text or "credentials" in printed.text


@pytest.mark.parametrize("text", ["a" * 1_000_000, "a://" * 250_000, "?" * 1_000_000])
def test_a_long_text_is_looked_through_once(text: str) -> None:
    """From each of its letters it would take hours, which pytest's own limit ends."""
    assert masked_url(text) == text
