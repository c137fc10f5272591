"""DataFrames of records through the engine: `apply_chain` and `match`."""

from turnout.spark.frames.chain import Applied, apply_chain
from turnout.spark.frames.columns import ERROR, ERROR_TYPE
from turnout.spark.frames.matching import match, subscriptions_table

__all__ = ["ERROR", "ERROR_TYPE", "Applied", "apply_chain", "match", "subscriptions_table"]
