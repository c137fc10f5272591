"""The services on the wire: gRPC servers and clients. Nothing else in turnout imports grpc."""

import os

from turnout.errors import MissingExtraError

# What gRPC does when its process forks can abort the child before it becomes another program: one in twenty-five of
# those that were started during calls, Spark's JVM among them. No child of ours uses its parent's gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

try:
    import grpc as _grpc  # noqa: F401 - to say early, and with its cure, that it is missing
except ModuleNotFoundError as missing:
    if missing.name != "grpc":
        raise
    raise MissingExtraError("subscriptions", "grpc") from missing
