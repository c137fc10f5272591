"""``turnout.yaml``, the environment and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import make_certificates
from turnout.errors import ConfigError
from turnout.routes import Route
from turnout.server.config import ServerConfig, seconds_of


def test_a_file_says_everything_and_its_paths_start_from_its_folder(tmp_path: Path) -> None:
    """Missing settings have defaults that restrict access."""
    (tmp_path / "turnout.yaml").write_text(
        "listen: '[::1]:9000'\nstate: kept\nrestarts: {max: 2, window: 1h}\n"
        "spark: {properties: {spark.ui.enabled: true}}\n"
    )

    config = ServerConfig.load(tmp_path / "turnout.yaml", {})

    assert (config.address.host, config.address.port) == ("::1", 9000)
    assert config.state == tmp_path / "kept"
    assert (config.restarts.max, config.restarts.window) == (2, 3600.0)
    assert config.spark.properties == {"spark.ui.enabled": True}
    assert ServerConfig.load(None, {}).listen == "127.0.0.1:8090"


def test_the_environment_is_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    """The variables of the subscriptions service mean here what they mean there."""
    file = tmp_path / "turnout.yaml"
    file.write_text("store: memory://file\ngrpc: {listen: '127.0.0.1:1'}\nlogLevel: error\n")
    environment = {
        "DB_URI": "mongodb://db",
        "DB_NAME": "n",
        "DB_TABLE_NAME": "t",
        "API_PORT": "7",
        "LOG_LEVEL": "DEBUG",
    }

    config = ServerConfig.load(file, environment, log_level="warning", store=None)

    assert config.store == "mongodb://db/n?table=t"
    assert config.grpc.listen == "127.0.0.1:7"
    assert config.log_level == "warning"
    assert ServerConfig.load(file, {}).store == "memory://file"


def test_all_mistakes_are_said_at_once_with_a_guess(tmp_path: Path) -> None:
    """Each with its path."""
    file = tmp_path / "turnout.yaml"
    file.write_text("listne: x\nlisten: nowhere\nrestarts: {maxx: 1, window: soon}\n")

    with pytest.raises(ConfigError) as refused:
        ServerConfig.load(file, {})

    problems = {mistake.path: mistake.problem for mistake in refused.value.mistakes}
    assert set(problems) == {"listne", "listen", "restarts.maxx", "restarts.window"}
    assert 'did you mean "listen"' in problems["listne"]
    assert 'did you mean "max"' in problems["restarts.maxx"]


def test_others_are_let_in_only_with_tls_and_tokens_or_knowingly(tmp_path: Path) -> None:
    """An address that other machines reach needs both; loopback needs neither."""
    tokens = tmp_path / "tokens"
    tokens.write_text("t0ken\n")
    certificates = make_certificates(tmp_path)
    tls = {"API_TLS_CERT": f"{certificates}/server.pem", "API_TLS_KEY": f"{certificates}/server.key"}
    for environment, flags in (({}, {}), (tls, {}), ({}, {"tokens": tokens})):
        with pytest.raises(ConfigError, match="can be reached by others"):
            ServerConfig.load(None, environment, listen="0.0.0.0:0", **flags)

    assert ServerConfig.load(None, tls, listen="0.0.0.0:0", tokens=tokens).tls is not None
    assert ServerConfig.load(None, {}, listen="0.0.0.0:0", insecure=True).insecure
    assert ServerConfig.load(None, {}, listen="localhost:0").address.loopback
    with pytest.raises(ConfigError, match=r"grpc\.listen"):
        ServerConfig.load(None, {"API_HOST": "::", "DB_URI": "memory://x"})


def test_the_variables_of_callers_are_names(tmp_path: Path) -> None:
    """None by default; the command line is over the file."""
    file = tmp_path / "turnout.yaml"
    file.write_text("routeVariables: [NATS_PW, B]\n")

    assert ServerConfig.load(None, {}).route_variables == ()
    assert ServerConfig.load(file, {}).route_variables == ("NATS_PW", "B")
    assert ServerConfig.load(file, {}, route_variables=("C",)).route_variables == ("C",)
    with pytest.raises(ConfigError, match=r"routeVariables\.0"):
        ServerConfig.load(None, {}, route_variables=("$A",))


def test_a_configuration_that_is_no_yaml_is_a_mistake(tmp_path: Path) -> None:
    """This includes texts that would end the process."""
    file = tmp_path / "turnout.yaml"
    for text in ("[" * 60_000, "listen: !!bool foo", "a: \0"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="is not YAML"):
            ServerConfig.load(file, {})


@pytest.mark.parametrize(("written", "seconds"), [(30, 30.0), ("250ms", 0.25), ("1.5 m", 90.0), ("7d", 604800.0)])
def test_spans_are_written_as_people_do(written: object, seconds: float) -> None:
    """A number without a unit is seconds."""
    assert seconds_of(written) == seconds


@pytest.mark.parametrize("written", ["", "m", "-1s", "1 fortnight", True, None])
def test_what_is_no_span_is_refused(written: object) -> None:
    """With examples of what is one."""
    with pytest.raises(ValueError, match="expected a span"):
        seconds_of(written)


def test_the_store_of_a_file_is_beside_it(tmp_path: Path) -> None:
    """As its other paths are, and as that of a route is: otherwise the two would be stores of one name."""
    (tmp_path / "turnout.yaml").write_text("store: sqlite:///../subscriptions.db\n", encoding="utf-8")
    (tmp_path / "route.yaml").write_text(
        'name: r\nsource: {format: nats, servers: "nats://127.0.0.1", stream: S}\nvalue: {format: json}\n'
        'subscriptions: {store: "sqlite:///../subscriptions.db"}\nsink: {format: nats, servers: "nats://127.0.0.1"}\n',
        encoding="utf-8",
    )
    config = ServerConfig.load(tmp_path / "turnout.yaml", {})
    route = Route.load(tmp_path / "route.yaml", {})

    assert route.subscriptions is not None
    assert config.store == route.subscriptions.store == f"sqlite:///{tmp_path}/../subscriptions.db"
    assert ServerConfig.load(tmp_path / "turnout.yaml", {"DB_URI": "sqlite:///here.db"}).store == "sqlite:///here.db"
