"""``turnout kv`` on a real server, as a user calls it."""

from __future__ import annotations

from tests.cli.test_tail import call, lines
from tests.nats.jetstream.support import fresh
from turnout.embedded import NatsServer
from turnout.nats.jetstream.errors import WrongLastSequenceError
from turnout.nats.jetstream.kv import KeyExistsError, KeyNotFoundError


def test_kv(nats_server: NatsServer) -> None:
    """A bucket's life on the command line."""
    bucket = fresh("kvcli")
    kv = ("kv", "--server", nats_server.url)
    call(*kv, "create-bucket", bucket, "--history", "5", "--memory")
    assert bucket in call(*kv, "buckets").stdout.split()
    assert call(*kv, "put", bucket, "a.b", "one").stdout == "1\n"
    assert call(*kv, "update", bucket, "a.b", "two", "--revision", "1").stdout == "2\n"
    call(*kv, "update", bucket, "a.b", "three", "--revision", "1", fails=WrongLastSequenceError)
    call(*kv, "create", bucket, "a.b", "x", fails=KeyExistsError)
    assert call(*kv, "get", bucket, "a.b").stdout == "two\n"
    assert call(*kv, "get", bucket, "a.b", "--revision", "1").stdout == "one\n"
    call(*kv, "put", bucket, "c", "-", stdin=b"from stdin")
    (entry,) = lines(call("kv", "--server", nats_server.url, "--json", "get", bucket, "c"))
    assert (entry["value"], entry["revision"], entry["operation"]) == ("from stdin", 3, "PUT")
    assert call(*kv, "keys", bucket).stdout == "a.b\nc\n"
    assert call(*kv, "keys", bucket, "c").stdout == "c\n"
    assert call(*kv, "watch", bucket, "--once").stdout == "[2] PUT a.b = two\n[3] PUT c = from stdin\n"
    call(*kv, "delete", bucket, "a.b")
    assert call(*kv, "history", bucket, "a.b").stdout.splitlines()[-1] == "[4] DEL a.b"
    call(*kv, "purge", bucket, "c")
    call(*kv, "get", bucket, "c", fails=KeyNotFoundError)
    assert call(*kv, "watch", bucket, "--updates-only", "--wait", "0.1").stdout == ""
    call(*kv, "delete-bucket", bucket)
    assert bucket not in call(*kv, "buckets").stdout.split()
