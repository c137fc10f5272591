"""Addresses that a server listens on, and the TLS and tokens that it and its clients demand there."""

from __future__ import annotations

import socket
from dataclasses import replace

import psutil
import pytest

from tests.certificates import make_certificates
from turnout.errors import ConfigError
from turnout.rpc.server import ServerSettings, subscriptions_server
from turnout.rpc.tokens import AcceptedToken

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
