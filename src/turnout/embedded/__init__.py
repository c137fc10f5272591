"""Real servers for the demo, the tests and the benchmarks, started on free loopback ports."""

from turnout.embedded.nats_server import NatsServer, find_nats_server

__all__ = ["NatsServer", "find_nats_server"]
