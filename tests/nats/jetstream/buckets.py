"""Key-value buckets of one test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.nats.jetstream.support import fresh

from turnout.embedded import NatsServer
from turnout.nats.jetstream import JetStream, StorageType, connect
from turnout.nats.jetstream.kv import KeyValue, KeyValueConfig


@asynccontextmanager
async def bucket(server: NatsServer, **config: Any) -> AsyncIterator[tuple[JetStream, KeyValue]]:
    async with connect(server.url) as js:
        name = fresh("bucket")
        yield js, await js.create_key_value(KeyValueConfig(bucket=name, storage=StorageType.MEMORY, **config))
