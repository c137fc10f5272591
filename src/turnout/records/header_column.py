"""Arrow type of the column of headers."""

from __future__ import annotations

import pyarrow as pa

ARROW = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]), nullable=True)
)
"""Type of the headers column: a list of structs for each record, as in Spark's Kafka source."""
