"""An asynchronous JetStream client that keeps ADR-15 (subscribe workflow) and ADR-19 (API prefixes).

Public name of `turnout.nats.jetstream`.
"""

from turnout.nats.jetstream import *  # noqa: F403
from turnout.nats.jetstream import __all__ as __all__
