"""URLs of clients: their token, password and tenant."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError
from turnout.rpc.channel import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.subscriptions import open_store


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
