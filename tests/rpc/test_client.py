"""URLs of clients: their token, password and tenant."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pytest

from tests.contracts.store import subscription
from turnout.errors import ConfigError, StoreUnavailableError
from turnout.rpc.client import Channel, MatchingClient
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


def test_shutdown_ends_watching(backing, settings):
    """A watcher is told that the server stops, and from which revision to continue."""
    server = subscriptions_server(backing, replace(settings, grace_seconds=3600.0)).start()
    client = MatchingClient(Channel(f"127.0.0.1:{server.port}"))
    backing.create(subscription())
    watching = client.watch()
    next(watching)
    # It does not wait for the watcher to leave.
    server.stop()

    with pytest.raises(StoreUnavailableError):
        next(watching)
    client.close()


def test_streams_leave_room(server, channel, store):
    """However many watch, short calls are answered, and one stream too many is refused."""
    clients = [MatchingClient(channel) for _ in range(server.settings.workers * 3 // 4)]
    store.create(subscription())
    streams = [client.watch() for client in clients]
    for stream in streams:
        next(stream)
    one_more = MatchingClient(channel)

    assert len(store.snapshot()) == 1
    with pytest.raises(StoreUnavailableError, match="too many streams"):
        next(one_more.watch())
    for stream in streams:
        assert isinstance(stream, Generator)
        stream.close()
    for client in [*clients, one_more]:
        client.close()
