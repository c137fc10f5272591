"""The services on the wire: gRPC servers and clients. Nothing else in turnout imports grpc."""
