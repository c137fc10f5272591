"""Messages, streams and patterns that several tests of the blocking client share."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st

from turnout.embedded import NatsServer
from turnout.nats.protocol.frames import frame
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stream_info

TOKENS = st.sampled_from(["a", "b", "c", "*a", "d-é"])
PATTERNS = st.tuples(st.lists(TOKENS | st.just("*"), max_size=3), st.sampled_from(["a", "b", "*", ">"])).map(
    lambda parts: ".".join([*parts[0], parts[1]])
)


def fill(server: NatsServer, stream: str, count: int) -> None:
    with Connection.open(server.url) as opened:
        publisher = Publisher(opened)
        for n in range(count):
            publisher.publish(f"{stream}.{n % 2}", b"%d" % n, [("A", "b")] if n % 5 == 0 else (), f"{n}")
        publisher.flush()


def stored(connection: Connection, stream: str) -> int:
    return int(stream_info(connection, stream)["state"]["messages"])


@contextmanager
def sparse_stream(connection: Connection) -> Iterator[str]:
    """A stream of 6,000 messages on 40 subjects of three tokens at random, one in ten of which is gone."""
    name = f"WAYS{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
    draw = random.Random(7)
    subjects = [f"{name}.{draw.choice('abcd')}.{draw.randrange(10)}" for _ in range(6000)]
    connection.send(b"".join(frame(subject, b"%d" % n) for n, subject in enumerate(subjects)))
    connection.request(f"{name}.end", b"")
    for sequence in draw.sample(range(1, 6001), 600):
        connection.publish(f"$JS.API.STREAM.MSG.DELETE.{name}", b'{"seq": %d}' % sequence)
    while connection.api(f"STREAM.INFO.{name}")["state"]["messages"] != 5401:
        time.sleep(0.01)
    yield name
    delete_stream(connection, name)
