"""Deprecated alias of `turnout.nats.wire`; removed after the next release."""

import warnings

from turnout.nats.wire import *  # noqa: F403
from turnout.nats.wire import __all__ as __all__

warnings.warn("turnout.wire is now turnout.nats.wire", DeprecationWarning, stacklevel=2)
