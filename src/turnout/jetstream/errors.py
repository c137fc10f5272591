"""Errors of the JetStream client: public name of `turnout.nats.jetstream.errors`."""

from turnout.nats.jetstream.errors import *  # noqa: F403
from turnout.nats.jetstream.errors import __all__ as __all__
