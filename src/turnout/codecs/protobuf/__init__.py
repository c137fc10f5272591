"""Messages of Google's Protocol Buffers, typed as Connect's ProtobufConverter types them."""

from turnout.codecs.protobuf.kind import KIND

__all__ = ["KIND"]
