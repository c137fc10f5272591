"""JetStream context with all its operations."""

from __future__ import annotations

from turnout.nats.jetstream import kv, objects
from turnout.nats.jetstream.core import JetStreamCore
from turnout.nats.jetstream.kv import KeyValue
from turnout.nats.jetstream.kv_config import KeyValueConfig
from turnout.nats.jetstream.object_info import ObjectStoreConfig
from turnout.nats.jetstream.objects import ObjectStore


class JetStream(JetStreamCore):
    """JetStream of the connection's own account, or behind a prefix or a domain (ADR-19).

    Made by `connect`; `behind` gives another JetStream over the same connection.
    """

    # -- views: key-value buckets and object stores

    async def key_value(self, bucket: str) -> KeyValue:
        """A key-value bucket that exists.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return await kv.key_value(self, bucket)

    async def create_key_value(self, config: KeyValueConfig) -> KeyValue:
        """Make a bucket; the same one again is no error.

        Raises:
            StreamNameInUseError: there is one of that name with another configuration.
        """
        return await kv.create_key_value(self, config)

    async def update_key_value(self, config: KeyValueConfig) -> KeyValue:
        """Change a bucket.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return await kv.update_key_value(self, config)

    async def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with all it holds.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        await kv.delete_key_value(self, bucket)

    async def key_value_names(self) -> list[str]:
        """The names of all buckets."""
        return await kv.key_value_names(self)

    async def object_store(self, bucket: str) -> ObjectStore:
        """An object store that exists.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        return await objects.object_store(self, bucket)

    async def create_object_store(self, config: ObjectStoreConfig) -> ObjectStore:
        """Make an object store; the same one again is no error.

        Raises:
            StreamNameInUseError: there is one of that name with another configuration.
        """
        return await objects.create_object_store(self, config)

    async def delete_object_store(self, bucket: str) -> None:
        """Delete an object store with all it holds.

        Raises:
            StreamNotFoundError: there is none of that name.
        """
        await objects.delete_object_store(self, bucket)

    async def object_store_names(self) -> list[str]:
        """The names of all object stores."""
        return await objects.object_store_names(self)
