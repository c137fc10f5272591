"""The services on the wire: gRPC servers and clients. Nothing else in turnout imports grpc."""

from turnout.errors import MissingExtraError

try:
    import grpc as _grpc  # noqa: F401 - to say early, and with its cure, that it is missing
except ModuleNotFoundError as missing:
    if missing.name != "grpc":
        raise
    raise MissingExtraError("subscriptions", "grpc") from missing
