"""Deprecated alias of `turnout.nats.protocol`; removed after the next release."""

import warnings

from turnout.nats.protocol import *  # noqa: F403
from turnout.nats.protocol import __all__ as __all__

warnings.warn("turnout.protocol is now turnout.nats.protocol", DeprecationWarning, stacklevel=2)
