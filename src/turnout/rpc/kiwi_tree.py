"""``kiwiTree.Service``: the registry of patterns, and the client that the subscriptions service uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from urllib.parse import urlsplit

import grpc
from google.protobuf.empty_pb2 import Empty

from turnout.errors import StoreUnavailableError, SubscriptionInvalidError
from turnout.rpc.status import translated
from turnout.rpc.v1 import kiwi_tree_pb2 as pb
from turnout.rpc.v1.kiwi_tree_pb2_grpc import ServiceServicer, ServiceStub
from turnout.subscriptions.kiwi_tree import PatternRegistry
from turnout.subscriptions.service import KiwiTrees


class KiwiTreeServicer(ServiceServicer):
    """Translates between the wire and a registry."""

    def __init__(self, registry: PatternRegistry) -> None:
        self._registry = registry

    def Create(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Register a pair."""
        self._registry.create(request.key, request.pattern)
        return Empty()

    def LockCreate(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Stop its creation."""
        self._registry.lock_create(request.key, request.pattern)
        return Empty()

    def UnlockCreate(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Allow it again."""
        self._registry.unlock_create(request.key, request.pattern)
        return Empty()

    def Delete(self, request: pb.KeyPatternRequest, context: grpc.ServicerContext) -> Empty:  # noqa: ARG002, N802
        """Remove it."""
        self._registry.delete(request.key, request.pattern)
        return Empty()


class KiwiTreeClient:
    """A `PatternRegistry` behind ``host:port`` or ``http://host:port``, the forms that the original documents."""

    def __init__(self, address: str, *, timeout: float = 5.0) -> None:
        self._address = (urlsplit(address).netloc if "://" in address else address).rpartition("@")[2]
        self._channel = grpc.insecure_channel(self._address)
        self._stub = ServiceStub(self._channel)
        self._timeout = timeout

    def create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.create`."""
        self._call(self._stub.Create, key, pattern)

    def lock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.lock_create`."""
        self._call(self._stub.LockCreate, key, pattern)

    def unlock_create(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.unlock_create`."""
        self._call(self._stub.UnlockCreate, key, pattern)

    def delete(self, key: str, pattern: str) -> None:
        """See `PatternRegistry.delete`."""
        self._call(self._stub.Delete, key, pattern)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _call(self, method: Callable[..., Empty], key: str, pattern: str) -> None:
        try:
            with translated():
                method(pb.KeyPatternRequest(key=key, pattern=pattern), timeout=self._timeout)
        except StoreUnavailableError as failure:
            # Otherwise the client would assume that this service is unreachable.
            raise StoreUnavailableError(f"the kiwi-tree service at {self._address}: {failure}") from failure


def registries(environment: Mapping[str, str], resources: ExitStack) -> KiwiTrees | None:
    """The kiwi-tree services that the environment names, as the original service has them; None where it does not.

    Raises:
        SubscriptionInvalidError: it names one of the two.
    """
    addresses = [environment.get(f"API_KIWI_TREE_{kind}_URI", "") for kind in ("COMPLETE", "PARTIAL")]
    if not any(addresses):
        return None
    if not all(addresses):
        raise SubscriptionInvalidError(
            "API_KIWI_TREE_COMPLETE_URI and API_KIWI_TREE_PARTIAL_URI belong together: one is not set"
        )
    complete, partial = (KiwiTreeClient(address) for address in addresses)
    for registry in (complete, partial):
        resources.callback(registry.close)
    return KiwiTrees(complete, partial)
