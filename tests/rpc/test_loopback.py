"""Addresses that a server listens on, and the TLS and tokens that it and its clients demand there."""

from __future__ import annotations

import socket
from dataclasses import replace

import psutil
import pytest

from tests.certificates import make_certificates
from turnout.errors import ConfigError
from turnout.rpc.channel import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.settings import ServerSettings
from turnout.rpc.tokens import AcceptedToken
from turnout.subscriptions import open_store

TOKENS = (AcceptedToken.plain("t"),)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = make_certificates(tmp_path_factory.mktemp("tls"))
    return {"tls_certificate": folder / "server.pem", "tls_key": folder / "server.key"}


def listening(*ports: int | None) -> set[str]:
    """The addresses on which this process listens at these ports; gRPC writes those of IPv4 as IPv6's."""
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports
    }


def test_loopback_unless_told(backing):
    """Without a host, gRPC and metrics are for this machine alone."""
    with subscriptions_server(backing, ServerSettings(port=0, metrics_port=0, log_level="error")) as server:
        assert listening(server.port) == listening(server.metrics_port) == {"127.0.0.1"}


def test_metrics_follow_the_host(backing, settings):
    """Metrics are on the address that the service is on."""
    with subscriptions_server(backing, replace(settings, host="127.0.0.2", metrics_port=0)) as server:
        assert listening(server.port) == listening(server.metrics_port) == {"127.0.0.2"}
    if socket.has_ipv6:
        with subscriptions_server(backing, replace(settings, host="[::1]", metrics_port=0)) as server:
            assert listening(server.port) == listening(server.metrics_port) == {"::1"}


def test_a_metrics_port_that_is_taken(backing, settings):
    """A metrics port that is in use is reported as an invalid request, without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = subscriptions_server(backing, replace(settings, metrics_port=port))
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            server.start()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "example.org"])
def test_off_loopback(host, tls):
    """Other machines are served only with TLS, or with an explicit insecure setting."""
    with pytest.raises(ConfigError, match=r"in the clear to other machines: give --tls-cert .* or --insecure"):
        ServerSettings(host=host)
    assert ServerSettings(host=host, insecure=True).insecure
    assert ServerSettings(host=host, tokens=TOKENS, **tls).tls_key


def test_no_tokens_without_tls_off_loopback(tls):
    """A token that would be sent in plain text is refused, even if TLS is disabled explicitly."""
    with pytest.raises(ConfigError, match="tokens without TLS can be read by others"):
        ServerSettings(host="0.0.0.0", insecure=True, tokens=TOKENS)
    assert ServerSettings(host="127.0.0.1", tokens=TOKENS).tokens == TOKENS


@pytest.mark.parametrize(("text", "insecure"), [("true", True), ("1", True), ("no", False)])
def test_insecure_from_the_environment(text, insecure):
    """The variable says it as the option does."""
    assert ServerSettings.from_environment({"API_INSECURE": text}).insecure is insecure
    with pytest.raises(ConfigError, match="API_INSECURE: expected true or false"):
        ServerSettings.from_environment({"API_INSECURE": "maybe"})


def test_a_clients_token_in_the_clear(tmp_path):
    """A client sends its token to another machine only over TLS, or with an explicit insecure setting."""
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "ca.pem").write_text("")
    for host in ("db.example:8080", "10.1.2.3:8080", "[2001:db8::1]:8080"):
        url = f"grpc://{host}?token-file={tmp_path}/token"
        with pytest.raises(ConfigError, match="would travel in the clear: add ca=…, or say insecure=true") as refused:
            open_store(url)
        assert "s3cret" not in str(refused.value)
        assert Channel.parse(f"{url}&insecure=true").token == Channel.parse(f"{url}&ca={tmp_path}/ca.pem").token
        assert "s3cret" not in repr(Channel.parse(f"{url}&insecure=true"))
    for host in ("127.0.0.1:8080", "localhost:8080", "[::1]:8080"):
        assert Channel.parse(f"grpc://{host}?token-file={tmp_path}/token").token == "s3cret"
    with pytest.raises(ConfigError, match="insecure: expected true or false"):
        Channel.parse("grpc://h:1?insecure=yes")


@pytest.mark.parametrize(
    "url",
    ["grpc://ann:pa55word@h:1", "grpc://ann:pa55word@", "grpc://h:1?password=pa55word", "gprc://ann:pa55word@h:1"],
)
def test_passwords_are_not_repeated(url):
    """Errors about a URL do not contain its password."""
    with pytest.raises(ConfigError) as refused:
        open_store(url)

    assert "pa55word" not in str(refused.value)


def test_a_tenant_in_the_url(backing, settings):
    """The URL can name the tenant to act for."""
    from tests.contracts.store import subscription

    with subscriptions_server(backing, settings) as server:
        with RemoteStore.open(f"grpc://127.0.0.1:{server.port}?tenant=acme") as store:
            store.create(subscription(id="x"))
        assert [subscription.id for subscription in backing.snapshot()] == ["@acme/x"]
    with pytest.raises(ConfigError, match="no tenant is named 'a/b'"):
        RemoteStore.open("grpc://127.0.0.1:1?tenant=a/b")
