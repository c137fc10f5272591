"""Deprecated alias of `turnout.engine.sample_records`; removed after the next release."""

import warnings

from turnout.engine.sample_records import SampleRecord as Given
from turnout.engine.sample_records import record_batch

__all__ = ["Given", "record_batch"]

warnings.warn("turnout.engine.given is now turnout.engine.sample_records", DeprecationWarning, stacklevel=2)
